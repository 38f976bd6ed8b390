#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure/ceilings.h"
#include "measure/measure.h"
#include "workload/quantise.h"

namespace lora_bench {

struct QuantiseMeasureRequest {
  const QuantiseStep& step;
  const MeasureSettings& settings;
  const Quantiser& quantiser;
  // The numbers that are timed, then others for which the timed sequence is run again.
  std::vector<QuantiseArrays> steps;
  // Asked of what the launches of a step left in every set of arrays. "" or what is wrong.
  std::function<std::string(std::size_t step, const QuantiseArrays& outputs)> check;
  std::function<bool()> stop;  // as that of MeasureRequest
  bool alone = true;           // fill alone_s as well
};

[[nodiscard]] Measurement measure_quantise(const QuantiseMeasureRequest& request, Memory& memory,
                                           Clock& clock, const DeviceFacts& device);
// What that allocates.
[[nodiscard]] std::int64_t quantise_bytes(const QuantiseProblem& problem, CacheMode cache,
                                          std::int64_t cache_bytes);

// x without its gaps and the scales that are given once, codes and the scales that are made once.
[[nodiscard]] Work count_quantise_work(const QuantiseProblem& problem);

}  // namespace lora_bench
