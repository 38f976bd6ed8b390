#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "ops/auto_choice.h"
#include "scenario/tuning_file.h"

namespace lora_bench {

[[nodiscard]] ShapeClass shape_class(const Problem& problem);

struct Timed {
  double time_us = 0, noise_us = 0;
};
// The time of a tuning that was proved; nothing where it was not. Briefly while it searches;
// `again` asks for the times that decide.
using TimeOf = std::function<std::optional<Timed>(const Tuning&, bool again)>;

struct TuningSearch {
  std::optional<TunedShape> found;  // what beats auto's own choice by more than the noise, twice
  std::int64_t tried = 0;
};

// One number after the other in each family, from what auto itself would choose, until none gets
// better or `ended` says so. Each launch is timed once; those that the device cannot have never.
[[nodiscard]] TuningSearch search_tuning(const AutoDevice& device, const Problem& problem,
                                         const TimeOf& time_of, const std::function<bool()>& ended);

}  // namespace lora_bench
