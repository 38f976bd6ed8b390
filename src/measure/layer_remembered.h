#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "measure/layer_time.h"

namespace lora_bench {

// One of the layers that were timed.
struct TimedLayer {
  LayerEngine& layer;
  std::function<void()> run;     // the sequence as it is loaded, until all shards have ended
  std::function<void()> record;  // loads the same for what the layer is then
};

// Who keeps what it once computed is quick and right as long as nothing changes. So at the same
// addresses one number of B, of A and of x of few rows is another, then all of x and of the
// adapters in use, and last, in a sequence loaded for it, the batch and the scales. What follows is
// drawn from `secret`. "" = right each time; layer and tensors are then as they were.
[[nodiscard]] std::string remembered_in(const LayerMeasureRequest& request, const TimedLayer& timed,
                                        std::uint64_t secret);

}  // namespace lora_bench
