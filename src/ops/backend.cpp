#include "ops/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ops/backends.h"
#include "ops/cublas_backend.h"
#include "ops/cublas_library.h"

namespace lora_bench {
namespace {

template <typename Number>
std::string outside(const char* field, Number value, Number least, Number most) {
  return value >= least && value <= most
             ? ""
             : fmt::format("{} = {}; allowed: {} to {}", field, value, least, most);
}

}  // namespace

std::string beyond_need(const Problem& problem, const Numerics& numerics) {
  constexpr std::int64_t kRoom = 64;
  const std::int64_t most_partials = std::max<std::int64_t>(problem.in_features, 1);
  for (const std::string& fault :
       {outside("unit_roundoff", numerics.unit_roundoff, 0x1p-53, 0x1p-8),
        outside<std::int64_t>("shrink_depth", numerics.shrink_depth, 0,
                              2 * problem.in_features + kRoom),
        outside<std::int64_t>("expand_depth", numerics.expand_depth, 0,
                              2 * problem.max_rank + kRoom),
        outside<std::int64_t>("partials", numerics.partials, 1, most_partials),
        outside<std::int64_t>("terms", numerics.terms_of_h, 1, most_partials)}) {
    if (!fault.empty()) {
      return fault;
    }
  }
  return "";
}

Support takes_semantics(const Problem& problem, Semantics taken) {
  std::string why_not = semantics_refused(problem, taken);
  return {why_not.empty(), std::move(why_not)};
}

namespace {

template <typename ArrayProblem>
Support support_of(const ArrayMaker<ArrayProblem>* maker, const ArrayProblem& problem,
                   const DeviceFacts& device, std::string why_none) {
  return maker == nullptr ? Support{false, std::move(why_none)} : maker->supports(problem, device);
}

}  // namespace

Support metadata_support(const Backend& backend, const MetadataProblem& problem,
                         const DeviceFacts& device) {
  return support_of(backend.metadata(), problem, device,
                    fmt::format("{} makes no metadata", backend.name()));
}

Support quantise_support(const Backend& backend, const QuantiseProblem& problem,
                         const DeviceFacts& device) {
  return support_of(backend.quantiser(), problem, device,
                    fmt::format("{} does not quantise", backend.name()));
}

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
