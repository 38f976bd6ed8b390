#include "measure/metadata_time.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "measure/array_time.h"
#include "plan/forms.h"

namespace lora_bench {
namespace {

ArrayLaunch arrays_of(const MetadataStep& step) {
  return {shapes_of(inputs_of(step.problem)), shapes_of(outputs_of(step.problem)),
          count_metadata_work(step).bytes};
}

}  // namespace

Measurement measure_metadata(const MetadataMeasureRequest& request, Memory& memory, Clock& clock,
                             const DeviceFacts& device) {
  const MetadataProblem& problem = request.step.problem;
  std::vector<EngineStep> engines{request.step.engine};
  engines.insert(engines.end(), request.others.begin(), request.others.end());
  ArrayMeasureRequest asked{
      .arrays = arrays_of(request.step),
      .settings = request.settings,
      .launch = [&](const ArrayOperands& operands,
                    Stream stream) { request.builder.launch(problem, operands, stream); },
      .steps = {},
      .check = nullptr,
      .stop = request.stop,
      .alone = request.alone};
  for (const EngineStep& engine : engines) {
    asked.steps.push_back(input_bytes(problem, engine));
  }
  if (request.check) {
    asked.check = [&](std::size_t step, const ArrayBuffers::Contents& outputs) {
      return request.check(engines[step], outputs);
    };
  }
  return measure_arrays(asked, memory, clock, device);
}

std::int64_t metadata_bytes(const MetadataStep& step, CacheMode cache, std::int64_t cache_bytes) {
  return array_measurement_bytes(arrays_of(step), cache, cache_bytes);
}

Work count_metadata_work(const MetadataStep& step) {
  const MetadataProblem& problem = step.problem;
  const std::vector<std::int32_t>& rows =
      problem.form == Form::kSampler ? step.engine.request_of_sample : step.engine.request_of_token;
  Work work;
  for (const MetadataArray& input : inputs_of(problem)) {
    const bool as_rows_say = input.name == "slot_of_request" || input.name == "expert_of_choice";
    work.bytes += as_rows_say ? 0 : input.bytes();
  }
  std::unordered_set<std::int32_t> named(rows.begin(), rows.end());
  named.erase(kNoAdapter);
  work.bytes += static_cast<std::int64_t>(named.size() * sizeof(std::int32_t));
  if (problem.form == Form::kAlign) {
    const std::vector<std::int32_t> adapters = step.engine.adapters_of(rows);
    const std::int64_t without = std::count(adapters.begin(), adapters.end(), kNoAdapter);
    work.bytes += (std::ssize(adapters) - without) * problem.top_k *
                  static_cast<std::int64_t>(sizeof(std::int32_t));
  }
  const std::vector<FilledArray> made = make_metadata(problem, step.engine);
  const std::vector<MetadataArray> outputs = outputs_of(problem);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::vector<std::int64_t>& values = made[i].values;
    const std::int64_t left_alone = std::count(values.begin(), values.end(), kLeftAlone);
    work.written_bytes += (std::ssize(values) - left_alone) * outputs[i].element_bytes();
  }
  work.bytes += work.written_bytes;
  work.rows = std::count_if(rows.begin(), rows.end(), [](std::int32_t row) { return row >= 0; });
  return work;
}

}  // namespace lora_bench
