#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure/ceilings.h"
#include "measure/measure.h"
#include "workload/metadata.h"

namespace lora_bench {

struct MetadataMeasureRequest {
  const MetadataStep& step;
  const MeasureSettings& settings;
  const MetadataBuilder& builder;
  // Asked of what the timed launches left in every set of arrays, for the step that was timed and
  // for `others`, to which the same sequence is run again. "" or what is wrong.
  std::function<std::string(const EngineStep&, const std::vector<std::vector<std::byte>>&)> check;
  std::vector<EngineStep> others;
  std::function<bool()> stop;  // as that of MeasureRequest
  bool alone = true;           // fill alone_s as well
};

// Launches that go round sets of arrays: two, for cache mode hot one, for cold as many as the last
// cache cannot hold, evicting it before each sample where that is too many.
[[nodiscard]] Measurement measure_metadata(const MetadataMeasureRequest& request, Memory& memory,
                                           Clock& clock, const DeviceFacts& device);
// What that allocates.
[[nodiscard]] std::int64_t metadata_bytes(const MetadataStep& step, CacheMode cache,
                                          std::int64_t cache_bytes);

// Every entry that is read and every one that is promised, once; of the table from request to slot
// what the rows of the step name.
[[nodiscard]] Work count_metadata_work(const MetadataStep& step);

}  // namespace lora_bench
