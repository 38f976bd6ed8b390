#pragma once

#include <string>

namespace lora_bench::test {

// Milliseconds on any machine; `extra` is appended at the top level.
inline std::string small_scenario(const std::string& extra = "") {
  return "name: small\n"
         "question: does the tool work?\n"
         "layer: {in: 96, out: [64, 16, 16]}\n"
         "batch: {decode: 6}\n"
         "adapters: {slots: 3, rank: 8}\n"
         "skew: uniform\n"
         "measure: {cache: hot, warmup_ms: 1, min_time_ms: 1, max_time_ms: 30, min_samples: 6, "
         "max_samples: "
         "8}\n" +
         extra;
}

}  // namespace lora_bench::test
