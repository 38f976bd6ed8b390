#include "compare/compare.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace lora_bench {
namespace {

// Above so many ratios the law of the test is normal to far less than a level needs.
constexpr std::int64_t kMostCounted = 400;

// Chances that exactly u of all ratios are below 1, for u from 0, where both groups are alike:
// each order of the repeats is as likely as any other. Orders are counted by which repeat is last.
std::vector<double> chances(std::int64_t base, std::int64_t fresh) {
  const auto ratios = static_cast<std::size_t>(base * fresh);
  std::vector<std::vector<double>> of_fresh(static_cast<std::size_t>(fresh) + 1,
                                            std::vector<double>(ratios + 1, 0));
  for (auto& counts : of_fresh) {
    counts[0] = 1;
  }
  for (std::int64_t i = 1; i <= base; ++i) {
    for (std::int64_t j = 1; j <= fresh; ++j) {
      const auto last_is_base = static_cast<std::size_t>(j);  // all j of fresh lie below it
      std::vector<double>& counts = of_fresh[static_cast<std::size_t>(j)];
      const std::vector<double>& without = of_fresh[static_cast<std::size_t>(j) - 1];
      const auto share = static_cast<double>(i) / static_cast<double>(i + j);
      for (std::size_t u = ratios + 1; u-- > 0;) {
        const double base_last = u >= last_is_base ? counts[u - last_is_base] : 0;
        counts[u] = share * base_last + (1 - share) * without[u];
      }
    }
  }
  return of_fresh.back();
}

std::int64_t rank_by_normal_law(std::int64_t base, std::int64_t fresh, double level) {
  const auto ratios = static_cast<double>(base * fresh);
  const double deviation = std::sqrt(ratios * static_cast<double>(base + fresh + 1) / 12);
  std::int64_t rank = 0;
  const auto below = [&](std::int64_t count) {
    const double distance = (ratios / 2 - static_cast<double>(count) - 0.5) / deviation;
    return std::erfc(distance / std::numbers::sqrt2) / 2;
  };
  while (2 * rank < base * fresh && below(rank) <= level) {
    ++rank;
  }
  return rank;
}

}  // namespace

std::int64_t rank_of_end(std::int64_t base, std::int64_t fresh, double level) {
  if (base < 1 || fresh < 1) {
    return 0;
  }
  if (base * fresh > kMostCounted) {
    return rank_by_normal_law(base, fresh, level);
  }
  std::int64_t rank = 0;
  double below = 0;
  for (const double chance : chances(base, fresh)) {
    below += chance;
    if (below > level) {
      break;
    }
    ++rank;
  }
  return std::min(rank, (base * fresh + 1) / 2);
}

std::int64_t least_repeats(double level) {
  // All of one group below all of the other is one order of (2 n)! / (n! n!).
  double chance = 1;
  std::int64_t repeats = 0;
  while (chance > level) {
    ++repeats;
    const auto n = static_cast<double>(repeats);
    chance *= n / (2 * (2 * n - 1));
  }
  return repeats;
}

Shift shift_of(std::span<const double> base, std::span<const double> fresh, double level) {
  std::vector<double> ratios;
  ratios.reserve(base.size() * fresh.size());
  for (const double before : base) {
    for (const double after : fresh) {
      ratios.push_back(std::log(after / before));
    }
  }
  std::sort(ratios.begin(), ratios.end());
  const std::size_t count = ratios.size();
  const auto rank =
      static_cast<std::size_t>(rank_of_end(std::ssize(base), std::ssize(fresh), level));
  return {(ratios[(count - 1) / 2] + ratios[count / 2]) / 2, ratios[rank - 1],
          ratios[count - rank]};
}

}  // namespace lora_bench
