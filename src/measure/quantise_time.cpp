#include "measure/quantise_time.h"

#include "measure/array_time.h"

namespace lora_bench {
namespace {

ArrayLaunch arrays_of(const QuantiseProblem& problem) {
  return {inputs_of(problem), outputs_of(problem), count_quantise_work(problem).bytes};
}

}  // namespace

Measurement measure_quantise(const QuantiseMeasureRequest& request, Memory& memory, Clock& clock,
                             const DeviceFacts& device) {
  const QuantiseProblem& problem = request.step.problem;
  return measure_arrays(
      {.arrays = arrays_of(problem),
       .settings = request.settings,
       .launch = [&](const ArrayOperands& operands,
                     Stream stream) { request.quantiser.launch(problem, operands, stream); },
       .steps = request.steps,
       .check = request.check,
       .stop = request.stop,
       .alone = request.alone},
      memory, clock, device);
}

std::int64_t quantise_bytes(const QuantiseProblem& problem, CacheMode cache,
                            std::int64_t cache_bytes) {
  return array_measurement_bytes(arrays_of(problem), cache, cache_bytes);
}

Work count_quantise_work(const QuantiseProblem& problem) {
  Work work;
  work.rows = problem.rows;
  for (const ArrayShape& output : outputs_of(problem)) {
    work.written_bytes += output.bytes();
  }
  const std::int64_t scales =
      problem.scales_given ? problem.scale_count() * size_bytes(Dtype::kFp32) : 0;
  work.bytes =
      problem.rows * problem.columns * size_bytes(problem.from) + scales + work.written_bytes;
  return work;
}

}  // namespace lora_bench
