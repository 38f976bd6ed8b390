#include <fmt/format.h>

#include <algorithm>

#include "ops/backend.h"

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
        outside<std::int64_t>("partials", numerics.partials, 1, most_partials)}) {
    if (!fault.empty()) {
      return fault;
    }
  }
  return "";
}

}  // namespace lora_bench
