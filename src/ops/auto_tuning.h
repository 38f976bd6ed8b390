#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/auto_choice.h"
#include "scenario/scenario.h"
#include "scenario/tuning_file.h"

namespace lora_bench {

// The knobs, and what no device launches: a number or tile that is not compiled, or one of another
// family than the tuning asks for. For LoadOptions.
[[nodiscard]] const TuningRules& tuning_rules();

// Values of one knob after the other, those that matter most first, for a search in a family.
[[nodiscard]] std::vector<KnobValue> values_to_try(AutoFamily family);
// With the value in the place of what the tuning says of that knob.
[[nodiscard]] Tuning with_value(const Tuning& tuning, const KnobValue& value);

// The same of an op that launches no half which the tuning speaks of; "" where it does. Who makes a
// half of a linear op leaves out what is said of the other (half_of).
[[nodiscard]] std::string why_no_such_half(const Problem& problem);

// Why the device does not launch the case just as problem.tuning says, with what it would; "" where
// it does.
[[nodiscard]] std::string why_not_tuned(const AutoDevice& device, const Problem& problem);

// "few rows an adapter: 64 tokens over 64 adapters".
[[nodiscard]] std::string reason_text(const AutoDevice& device, const Problem& problem);

// What backend `auto` launches on the device and why, a sentence a line, for operands that begin on
// 16 bytes as those of a run do.
[[nodiscard]] std::vector<std::string> explain_auto(const AutoDevice& device,
                                                    const Problem& problem);

// The same launch as a tuning says it: with it in the place of problem.tuning that is what is
// launched again. Says nothing where nothing is launched.
[[nodiscard]] Tuning tuning_of_choice(const AutoDevice& device, const Problem& problem);

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
