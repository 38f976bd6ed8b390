#pragma once

#include "layers/layer_home.h"
#include "measure/layer_time.h"

namespace lora_bench {

// The layer with all its shards at once, each where it lies, and all that they exchange; base and
// layer are sampled in turn. The clock is one of all places, its time that of the slowest. Of the
// request, `base` and `lora` are not read.
[[nodiscard]] LayerMeasurement measure_layer_together(const LayerMeasureRequest& request,
                                                      const LayerHome& home, Clock& clock,
                                                      const DeviceFacts& device);

}  // namespace lora_bench
