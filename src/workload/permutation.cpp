#include "workload/permutation.h"

#include <algorithm>
#include <utility>

#include "core/random.h"

namespace lora_bench {

std::vector<std::int64_t> random_order(std::int64_t count, std::uint64_t seed,
                                       std::uint64_t stream) {
  const RandomStream random(seed, stream);
  std::vector<std::pair<std::uint64_t, std::int64_t>> keyed;
  keyed.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    keyed.emplace_back(random.bits(static_cast<std::uint64_t>(i)), i);
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<std::int64_t> order;
  order.reserve(keyed.size());
  for (const auto& [key, i] : keyed) {
    order.push_back(i);
  }
  return order;
}

}  // namespace lora_bench
