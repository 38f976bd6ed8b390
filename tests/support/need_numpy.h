#pragma once

#include <string>

#include "support/process.h"
#include "support/skipped.h"

namespace lora_bench::test {

// A Python that has NumPy, "" where there is none.
inline std::string python_with_numpy() {
  for (const std::string python : {"python3", "/usr/bin/python3"}) {
    if (run_process({python, "-c", "import numpy"}).exit_code == 0) {
      return python;
    }
  }
  return "";
}

}  // namespace lora_bench::test

// Names a Python that has NumPy, or leaves the test as one that was skipped: what proves nothing
// must not count as passed.
#define LORA_BENCH_NEED_NUMPY(python)                                                         \
  const std::string python = lora_bench::test::python_with_numpy();                           \
  if (python.empty()) {                                                                       \
    lora_bench::test::note_skipped("no python3 with NumPy here (apt install python3-numpy)"); \
    return;                                                                                   \
  }                                                                                           \
  static_assert(true, "takes the semicolon")
