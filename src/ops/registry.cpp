#include "ops/backend.h"
#if __has_include("ops/cpu_backend.h")
#include "ops/cpu_backend.h"
#endif
#include "ops/naive_backend.h"

namespace lora_bench {

const std::vector<BackendEntry>& backend_registry() {
  static const std::vector<BackendEntry> kEntries {
#if __has_include("ops/cpu_backend.h")
    {"cpu", "", make_cpu_backend},
#endif
        {"naive", std::string(kNaiveSummary), why_no_gpu(), make_naive_backend},
  };
  return kEntries;
}

}  // namespace lora_bench
