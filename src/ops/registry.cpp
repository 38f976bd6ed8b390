#include "ops/auto_backend.h"
#include "ops/backend.h"
#include "ops/bgmv_backend.h"
#include "ops/chunked_backend.h"
#include "ops/cpu_backend.h"
#include "ops/cublas_backend.h"
#include "ops/cublas_library.h"
#include "ops/grouped_backend.h"
#include "ops/naive_backend.h"
#include "ops/panel_backend.h"

namespace lora_bench {

const std::vector<BackendEntry>& backend_registry() {
  static const std::vector<BackendEntry> kEntries{
      {"cpu", std::string(kCpuSummary), "", [] { return make_cpu_backend(); }},
      {"naive", std::string(kNaiveSummary), why_no_gpu(), make_naive_backend},
      {"grouped", std::string(kGroupedSummary), why_no_gpu(), make_grouped_backend},
      {"grouped-ordered", std::string(kGroupedOrderedSummary), why_no_gpu(),
       make_grouped_ordered_backend},
      {"chunked", std::string(kChunkedSummary), why_no_gpu(), make_chunked_backend},
      {"bgmv", std::string(kBgmvSummary), why_no_gpu(), make_bgmv_backend},
      {"auto", std::string(kAutoSummary), why_no_gpu(), make_auto_backend},
      {"panel", std::string(kPanelSummary), why_no_gpu(), make_panel_backend},
      {"cublas", std::string(kCublasSummary), why_no_cublas(), make_cublas_backend},
  };
  return kEntries;
}

}  // namespace lora_bench
