#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/process.h"

namespace lora_bench::test {

// A Python that has NumPy. Leaves the program with the code that CTest counts as skipped where
// there is none: a test that proves nothing must not count as passed.
inline std::string need_numpy() {
  constexpr int kSkipped = 77;
  for (const std::string python : {"python3", "/usr/bin/python3"}) {
    if (run_process({python, "-c", "import numpy"}).exit_code == 0) {
      return python;
    }
  }
  std::fprintf(stderr, "skipped: no python3 with NumPy here (apt install python3-numpy)\n");
  std::exit(kSkipped);
}

}  // namespace lora_bench::test
