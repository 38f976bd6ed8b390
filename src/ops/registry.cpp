#include "ops/backend.h"
#include "ops/cpu_backend.h"
#include "ops/naive_backend.h"

namespace lora_bench {

const std::vector<BackendEntry>& backend_registry() {
  static const std::vector<BackendEntry> kEntries{
      {"cpu", std::string(kCpuSummary), "", [] { return make_cpu_backend(); }},
      {"naive", std::string(kNaiveSummary), why_no_gpu(), make_naive_backend},
  };
  return kEntries;
}

}  // namespace lora_bench
