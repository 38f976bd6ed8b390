#include "workload/skew.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"
#include "core/random.h"

namespace lora_bench {
namespace {

// cumulative[i] = p(0) + ... + p(i), unnormalised.
std::vector<double> zipf_cumulative(std::int64_t slots, double exponent) {
  std::vector<double> cumulative;
  cumulative.reserve(static_cast<std::size_t>(slots));
  double sum = 0;
  for (std::int64_t i = 0; i < slots; ++i) {
    sum += std::pow(static_cast<double>(i + 1), -exponent);
    cumulative.push_back(sum);
  }
  return cumulative;
}

std::int64_t draw_zipf(const std::vector<double>& cumulative, double unit) {
  const auto found =
      std::upper_bound(cumulative.begin(), cumulative.end(), unit * cumulative.back());
  const auto last = static_cast<std::int64_t>(cumulative.size()) - 1;
  return std::min<std::int64_t>(found - cumulative.begin(), last);
}

std::int64_t trace_entry(const SkewLaw& law, std::int64_t i, std::int64_t slots) {
  if (law.trace.empty()) {
    throw CaseError("trace '" + law.trace_file + "' holds no adapter ids");
  }
  const std::int32_t id = law.trace[static_cast<std::size_t>(i) % law.trace.size()];
  if (id < -1 || id >= slots) {
    throw CaseError("trace '" + law.trace_file + "' names adapter " + std::to_string(id) +
                    "; here ids go from -1 to " + std::to_string(slots - 1));
  }
  return id;
}

}  // namespace

std::vector<std::int32_t> draw_law(const SkewLaw& law, std::int64_t count, std::int64_t slots,
                                   std::uint64_t seed, std::uint64_t stream) {
  const auto uniform = [&](std::int64_t i, std::int64_t bound) {
    return static_cast<std::int64_t>(random_below(seed, stream, static_cast<std::uint64_t>(i),
                                                  static_cast<std::uint64_t>(bound)));
  };
  const std::vector<double> cumulative =
      law.kind == Skew::kZipf ? zipf_cumulative(slots, law.parameter) : std::vector<double>{};
  const auto draw = [&](std::int64_t i) -> std::int64_t {
    const auto index = static_cast<std::uint64_t>(i);
    switch (law.kind) {
      case Skew::kIdentical:
        return 0;
      case Skew::kDistinct:
        return i % slots;
      case Skew::kUniform:
        return uniform(i, slots);
      case Skew::kZipf:
        return draw_zipf(cumulative, random_unit(seed, stream, index));
      case Skew::kHot: {
        const bool hot = slots == 1 || random_unit(seed, stream, 2 * index) < law.parameter;
        return hot ? 0 : 1 + uniform(2 * i + 1, slots - 1);
      }
      case Skew::kOneVsRest:
        return i == 0 ? 0 : std::min<std::int64_t>(1, slots - 1);
      case Skew::kBlocks:
        return i * slots / count;
      case Skew::kTrace:
        return trace_entry(law, i, slots);
    }
    return 0;
  };
  std::vector<std::int32_t> adapters;
  adapters.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    adapters.push_back(static_cast<std::int32_t>(draw(i)));
  }
  return adapters;
}

}  // namespace lora_bench
