#pragma once

#include <cstdint>
#include <functional>

#include "scenario/case.h"

namespace lora_bench {

struct Shrunk {
  Case spec;               // the smallest that still fails; the one given if none smaller does
  std::int64_t steps = 0;  // how often it became smaller
  std::int64_t tries = 0;  // cases tried for that
};

// Makes a failing case smaller as long as `fails` holds: fewer sequences, slots and slices, smaller
// sizes, the plain value of everything else. Greedy: the first smaller case that fails is taken.
// No case is tried twice; ends early when `stop` says so, with the best so far. Every case tried is
// one that a scenario may hold.
[[nodiscard]] Shrunk shrink_case(const Case& spec, const std::function<bool(const Case&)>& fails,
                                 const std::function<bool()>& stop);

}  // namespace lora_bench
