#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "device/facts.h"

// Leaves the program with the code that CTest counts as skipped where there is no GPU to test on:
// a test that proves nothing must not count as passed.
inline void need_gpu() {
  constexpr int kSkipped = 77;
  const std::string reason = lora_bench::why_no_gpu();
  if (!reason.empty()) {
    std::fprintf(stderr, "skipped: %s\n", reason.c_str());
    std::exit(kSkipped);
  }
}
