#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "device/facts.h"

// Leaves the program with the code that CTest counts as skipped where something is not here to test
// on or with: a test that proves nothing must not count as passed. "" = it is here.
inline void need(const std::string& why_not) {
  constexpr int kSkipped = 77;
  if (!why_not.empty()) {
    std::fprintf(stderr, "skipped: %s\n", why_not.c_str());
    std::exit(kSkipped);
  }
}

inline void need_gpu() { need(lora_bench::why_no_gpu()); }
