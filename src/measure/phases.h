#pragma once

#include "measure/measure.h"

namespace lora_bench {

// The parts of a linear op, each measured by itself as `measure` does it, with a rotation of its
// own: operands of one part alone may fit a cache that the whole does not fit.
[[nodiscard]] Phases measure_phases(const MeasureRequest& request, const Backend& backend,
                                    Memory& memory, Clock& clock, const DeviceFacts& device);

}  // namespace lora_bench
