#pragma once

#include <string>

#include "device/facts.h"
#include "support/skipped.h"

// Ends the test case where something is not here to test on or with: a test that proves nothing
// must not count as passed, nor keep those after it from failing. WHY_NOT is "" where it is here.
#define LORA_BENCH_NEED(WHY_NOT)                                 \
  if (const std::string why_not = (WHY_NOT); !why_not.empty()) { \
    lora_bench::test::note_skipped(why_not);                     \
    return;                                                      \
  }

#define LORA_BENCH_NEED_GPU() LORA_BENCH_NEED(lora_bench::why_no_gpu())
