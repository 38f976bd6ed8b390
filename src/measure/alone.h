#pragma once

#include <vector>

#include "measure/sampling.h"

// What a launch adds where something else runs before and after it (docs/measuring.md, "Back to
// back and alone").
namespace lora_bench {

// Slots of the clock: separators by themselves, and the same with a launch between any two.
constexpr int kSeparators = 2, kAlone = 3;

void load_alone(Clock& clock, const Launch& separator, const std::vector<Launch>& launches);

// Samples both in turn as `sampling` says, whose `prepare` is called before each run of the
// launches. Fills alone_s and alone_noise_s of `into`, of the samples it has taken before, and
// whether it was interrupted.
void sample_alone(const Sampling& sampling, Clock& clock, Measurement& into);

}  // namespace lora_bench
