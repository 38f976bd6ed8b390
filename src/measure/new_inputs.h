#pragma once

#include <cstdint>
#include <optional>

#include "measure/measure.h"
#include "measure/timed_sequence.h"

namespace lora_bench {

// Times the sequence with other rows, of x or a given h, put in place by a copy before each time
// that it goes round the sets: first copies of the rows as they have been in all samples, then, at
// the same addresses, others that follow from `secret` and are no two times the same. Nothing else
// differs, so what is slower then is what was left out because no row was new. Nothing where there
// is no such row or no room. `launch_s`: in a sample. Leaves rows and y as they were drawn.
[[nodiscard]] std::optional<NewInputs> time_new_inputs(TimedSequence& timed, double launch_s,
                                                       std::uint64_t secret);

}  // namespace lora_bench
