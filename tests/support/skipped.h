#pragma once

#include <cstdio>
#include <string>

namespace lora_bench::test {

// How many tests of this process could prove nothing here: main returns the code that CTest counts
// as skipped when there are some and no other failed. Those after them run all the same.
inline int& skipped_tests() {
  static int count = 0;
  return count;
}

inline void note_skipped(const std::string& why) {
  ++skipped_tests();
  std::fprintf(stderr, "skipped: %s\n", why.c_str());
}

}  // namespace lora_bench::test
