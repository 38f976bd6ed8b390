#include <algorithm>
#include <cmath>
#include <numeric>

#include "workload/batch.h"
#include "workload/fill_sizes.h"

namespace lora_bench {
namespace {

// Largest remainder: whole parts first, what is left to the largest fractions (ties: the first).
std::vector<std::int64_t> split_by_shares(
    std::int64_t slots, const std::vector<std::pair<std::int64_t, double>>& shares) {
  double total = 0;
  for (const auto& [rank, share] : shares) {
    total += share;
  }
  std::vector<std::int64_t> counts;
  std::vector<double> fractions;
  std::int64_t given = 0;
  for (const auto& [rank, share] : shares) {
    const double exact = static_cast<double>(slots) * share / total;
    counts.push_back(static_cast<std::int64_t>(std::floor(exact)));
    fractions.push_back(exact - std::floor(exact));
    given += counts.back();
  }
  std::vector<std::size_t> by_fraction(shares.size());
  std::iota(by_fraction.begin(), by_fraction.end(), std::size_t{0});
  std::stable_sort(by_fraction.begin(), by_fraction.end(),
                   [&](std::size_t a, std::size_t b) { return fractions[a] > fractions[b]; });
  for (std::size_t i = 0; given < slots; ++i, ++given) {
    ++counts[by_fraction[i % by_fraction.size()]];
  }
  return counts;
}

std::vector<std::int64_t> draw_ranks(const Case& spec) {
  const auto slots = static_cast<std::size_t>(spec.adapters.slots);
  std::vector<std::int64_t> ranks(slots, 0);
  const RankLaw& law = spec.adapters.rank;
  if (!law.list.empty()) {
    for (std::size_t slot = 0; slot < slots; ++slot) {
      ranks[slot] = law.list[slot % law.list.size()];
    }
  }
  if (!law.shares.empty()) {
    const std::vector<std::int64_t> counts = split_by_shares(spec.adapters.slots, law.shares);
    const std::vector<std::int64_t> order =
        random_order(spec.adapters.slots, spec.seed, stream_of(Draw::kRankDeal));
    std::size_t dealt = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      for (std::int64_t n = 0; n < counts[i]; ++n, ++dealt) {
        ranks[static_cast<std::size_t>(order[dealt])] = law.shares[i].first;
      }
    }
  }
  return ranks;
}

}  // namespace

Adapters draw_adapters(const Case& spec) {
  Adapters adapters;
  adapters.max_rank = spec.adapters.max_rank;
  adapters.rank = draw_ranks(spec);
  for (const std::int64_t rank : adapters.rank) {
    adapters.max_rank = std::max(adapters.max_rank, rank);
  }
  const std::vector<double>& scale = spec.adapters.scale;
  for (std::size_t slot = 0; slot < adapters.rank.size(); ++slot) {
    adapters.scale.push_back(scale.empty() ? 1.0F : static_cast<float>(scale[slot % scale.size()]));
  }
  return adapters;
}

std::vector<bool> missing_experts(const Case& spec) {
  const std::int64_t experts = spec.experts.count;
  std::vector<bool> missing(static_cast<std::size_t>(spec.adapters.slots * experts), false);
  const std::int64_t absent = std::llround(spec.experts.missing * static_cast<double>(experts));
  for (std::int64_t slot = 0; slot < spec.adapters.slots && absent > 0; ++slot) {
    const std::vector<std::int64_t> order =
        random_order(experts, spec.seed, stream_of(Draw::kMissingExperts, slot));
    for (std::int64_t i = 0; i < absent; ++i) {
      missing[static_cast<std::size_t>(slot * experts + order[static_cast<std::size_t>(i)])] = true;
    }
  }
  return missing;
}

}  // namespace lora_bench
