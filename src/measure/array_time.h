#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure/measure.h"
#include "ops/array_buffers.h"

namespace lora_bench {

// What an op without products reads and writes in a launch.
struct ArrayLaunch {
  ArrayShapes inputs, outputs;
  std::int64_t touched_bytes = 0;  // of these arrays: perhaps far fewer than they have room for
};

struct ArrayMeasureRequest {
  ArrayLaunch arrays;
  const MeasureSettings& settings;
  std::function<void(const ArrayOperands&, Stream)> launch;
  // What the inputs hold: the step that is timed, then others, for which the same sequence is run
  // again where there is a check.
  std::vector<ArrayBuffers::Contents> steps;
  // Asked of what the launches of a step left in every set of arrays. "" or what is wrong.
  std::function<std::string(std::size_t step, const ArrayBuffers::Contents& outputs)> check;
  std::function<bool()> stop;  // as that of MeasureRequest
  bool alone = true;           // fill alone_s as well
};

// Launches that go round sets of arrays: two, for cache mode hot one, for cold as many as the last
// cache cannot hold, evicting it before each sample where that is too many.
[[nodiscard]] Measurement measure_arrays(const ArrayMeasureRequest& request, Memory& memory,
                                         Clock& clock, const DeviceFacts& device);
// What that allocates.
[[nodiscard]] std::int64_t array_measurement_bytes(const ArrayLaunch& arrays, CacheMode cache,
                                                   std::int64_t cache_bytes);

}  // namespace lora_bench
