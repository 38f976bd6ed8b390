#include "workload/fill_sizes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/random.h"
#include "workload/weight_scales.h"

namespace lora_bench {
namespace {

constexpr double kLargestSum = 0x1p24;    // integers that fp32 holds without a gap
constexpr double kLargestFp16 = 65504.0;  // finite

// Largest integer up to which all are representable, kept to 2^11 so that products stay small.
std::int64_t largest_integer(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
    case Dtype::kFp16:
      return 2048;
    case Dtype::kBf16:
      return 256;
    case Dtype::kE4m3:
      return 16;
    case Dtype::kE5m2:
      return 8;
  }
  return 1;
}

// Root mean square of +-{1 .. n}.
double rms(std::int64_t n) {
  const auto value = static_cast<double>(n);
  return std::sqrt((value + 1) * (2 * value + 1) / 6);
}

std::int64_t whole(double value, std::int64_t largest) {
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(value), 1, largest);
}

double largest_rank(const Problem& problem) {
  std::int64_t rank = 1;
  for (const std::int64_t of_slot : problem.rank) {
    rank = std::max(rank, of_slot);
  }
  return static_cast<double>(rank);
}

// A sum over the rank of |h||B| seldom exceeds rms(h) * max|B| * this: the mean of the terms grows
// with the rank, their spread with its root (six deviations).
double expand_spread(double rank) { return 0.4 * rank + 6 * std::sqrt(rank); }

// Magnitudes of x and A. A sum over K never exceeds 2^24, and h is as large as the sum over the
// rank then allows with |B| up to 3: split-K partials of h leave the range that bf16 (2^8) and
// fp16 (2^11) hold exactly, so that storing them narrow shows.
void size_shrink(const Problem& problem, FillSizes& sizes) {
  const double k = static_cast<double>(std::max<std::int64_t>(problem.in_features, 1));
  const double room = kLargestSum / 2 / (3 * expand_spread(largest_rank(problem))) /
                      exact_spread_over_lanes(problem);
  // An fp16 h must stay finite; eleven deviations do not happen.
  const double scaled = (problem.has_scaled_weights() ? kLargestExactScale : 1) *
                        (problem.has_scaled_x() ? kLargestExactScale : 1);
  const double finite =
      problem.dtype[Role::kH] == Dtype::kFp16 ? kLargestFp16 / 11 / scaled : 0x1p15;
  const double h = std::min({room, finite, 0x1p15});
  const double product =
      std::min(3 * h / std::sqrt(k), kLargestSum / k / exact_spread_over_k(problem));
  sizes.x.integers = whole(std::sqrt(product), largest_integer(problem.dtype[Role::kX]));
  sizes.a.integers = whole(product / static_cast<double>(sizes.x.integers),
                           largest_integer(problem.dtype[Role::kA]));
  if (has_shrink(problem.op) && !problem.adds_to_h()) {
    return;
  }
  const std::int64_t stored = largest_integer(problem.dtype[Role::kH]);
  sizes.h.integers = problem.dtype[Role::kH] == Dtype::kFp32 ? whole(h, 1 << 15) : stored;
}

double rms_of_h(const Problem& problem, const FillSizes& sizes) {
  return has_shrink(problem.op) ? std::sqrt(static_cast<double>(problem.in_features)) *
                                      rms(sizes.x.integers) * rms(sizes.a.integers)
                                : rms(sizes.h.integers);
}

// What an op makes of h on the way to y: a scale that shrink applied is already in a given h.
double applied_scale(const Problem& problem, float scale) {
  const bool applied = has_shrink(problem.op) || problem.scale_at == ScaleAt::kExpand;
  return applied && scale != 0 ? static_cast<double>(scale) : 1.0;
}

// Magnitudes of B, y and bias, all in one unit. B is divided by its slot's scale, so that every
// slot's delta has the same size and the same unit, and a scale that is missed still shows.
void size_expand(const Problem& problem, FillSizes& sizes) {
  const double rank = largest_rank(problem);
  const double h = std::max(rms_of_h(problem, sizes), 1.0);
  // The least factor of a row makes the unit of its sum finer than that of y.
  const double room = kLargestSum / 2 * (problem.has_factors() ? kLeastExactFactor : 1);
  const std::int64_t b =
      whole(room / (h * expand_spread(rank)) / exact_spread_over_lanes(problem),
            std::min<std::int64_t>(largest_integer(problem.dtype[Role::kB]), 255));
  double delta = std::sqrt(rank) * h * rms(b);
  double larger = 1;  // than that, of eight bits, where scales are the largest
  if (problem.has_scaled_weights()) {
    const int products =
        (has_shrink(problem.op) ? 2 : 1) + (problem.has_scaled_activations() ? 1 : 0);
    delta *= std::pow(kMeanExactScale, products);
    larger = std::pow(kLargestExactScale / kMeanExactScale, products);
  }
  double unit = 1;
  if (problem.dtype[Role::kY] == Dtype::kFp16 ||
      (problem.bias && problem.dtype[Role::kBias] == Dtype::kFp16)) {
    const double needed = std::max(1.0, 12 * larger * delta / kLargestFp16);
    unit = std::exp2(-std::ceil(std::log2(needed)));
  }
  for (const float scale : sizes.scale) {
    sizes.b.push_back({b, static_cast<float>(unit / applied_scale(problem, scale))});
  }
  // y0 is about as large as the delta (lost or doubled, it shows; it does not hide the delta), in
  // steps that leave it eight bits.
  const double step = std::exp2(std::max(0.0, std::ceil(std::log2(2 * delta / 255))));
  const auto factor = static_cast<float>(step * unit);
  sizes.y = {whole(2 * delta / step, 255), factor};
  sizes.bias = {whole(delta / step, 127), factor};
}

// Neighbouring slots differ, none is 1, and none enlarges a sum.
std::vector<float> exact_scales(const Problem& problem) {
  constexpr std::array<float, 4> kScales{0.5F, -0.25F, 0.125F, -0.5F};
  std::vector<float> scales;
  for (std::size_t slot = 0; slot < static_cast<std::size_t>(problem.slots); ++slot) {
    scales.push_back(kScales[slot % kScales.size()]);
  }
  return scales;
}

// Of numbers of one bit, so few of which are not 0 that a sum over K leaves the scales of its terms
// their bits, and so does one over the rank. Each lane is of some column, each feature of some row.
FillSizes fine_sizes(const Problem& problem) {
  constexpr double kMostLanes = 64;
  constexpr double kSteps = 1 << kFineScaleBits;  // of a scale
  const double rank = largest_rank(problem);
  const double lanes = std::min(rank, kMostLanes);
  // The mean of the magnitudes of h, with six deviations of their sum.
  const double of_lanes = 0.8 * lanes + 6 * std::sqrt(lanes);
  const double h = std::min(kLargestSum / 2 / kSteps / of_lanes, std::sqrt(kLargestSum / kSteps));
  const auto k = static_cast<double>(problem.in_features);
  FillSizes sizes;
  sizes.scale = exact_scales(problem);
  sizes.a.integers = 1;
  sizes.x = {1, 1, std::max<std::int64_t>(1, std::llround(std::ceil(k / (h * h))))};
  sizes.h.integers =
      whole(h, largest_integer(problem.has_scaled_h() ? problem.dtype[Role::kH] : Dtype::kBf16));
  for (const float scale : sizes.scale) {
    sizes.b.push_back({1, static_cast<float>(1 / applied_scale(problem, scale)),
                       std::llround(std::ceil(rank / kMostLanes))});
  }
  // y0 and the bias are smaller than the delta: what a narrower scale takes from that is to show.
  const double given = std::min(h, static_cast<double>(sizes.h.integers));
  const double terms = has_shrink(problem.op) ? std::min(k, h * h) : given * given / 3;
  const double delta = std::sqrt(lanes * terms) / 2;
  const double step = std::exp2(std::ceil(std::log2(delta / 255)));
  sizes.y = sizes.bias = {whole(delta / step, 127), static_cast<float>(step)};
  return sizes;
}

FillSizes exact_sizes(const Problem& problem) {
  FillSizes sizes;
  sizes.scale = exact_scales(problem);
  size_shrink(problem, sizes);
  size_expand(problem, sizes);
  return sizes;
}

// About what h is before the scale: 1, or less where fp16 has to hold it with a large scale, also
// where all terms of a long sum have one sign, or more where it would fall below fp16's normal
// range with a small one.
double real_h(const Problem& problem, const std::vector<float>& scales) {
  if (!has_shrink(problem.op) || problem.dtype[Role::kH] != Dtype::kFp16 ||
      problem.scale_at != ScaleAt::kShrink) {
    return 1;
  }
  constexpr double kSmall = 0x1p-8;
  double largest = 1;
  double least = 1;
  for (const float scale : scales) {
    const double size = std::abs(static_cast<double>(scale));
    largest = std::max(largest, size);
    least = size > 0 ? std::min(least, size) : least;
  }
  // Where all terms have one sign a sum over K grows by the root of K.
  const double roots =
      std::sqrt(static_cast<double>(std::max<std::int64_t>(problem.in_features, 1)));
  const double enough = kSmall / least;
  const double most =
      std::max(std::min(1.0, enough), std::min(0x1p10, kLargestFp16 / largest / roots));
  constexpr double kDeviations = 16;
  const double h = std::min({std::max(1.0, enough), most, kLargestFp16 / kDeviations / largest});
  return std::exp2(std::floor(std::log2(h)));
}

// Uniform reals for which h is near 1 and a delta near `delta`.
FillSizes real_sizes(const Problem& problem, double delta, std::vector<float> scale) {
  FillSizes sizes;
  sizes.scale = std::move(scale);
  const double h = real_h(problem, sizes.scale);
  sizes.a.factor = static_cast<float>(
      3 * h / std::sqrt(static_cast<double>(std::max<std::int64_t>(problem.in_features, 1))));
  sizes.h.factor = static_cast<float>(std::sqrt(3.0));
  sizes.bias.factor = 0.5F;
  // A given h is as large as what is added to it: neither hides the other.
  for (std::size_t slot = 0; problem.adds_to_h() && slot < sizes.scale.size(); ++slot) {
    const double size = std::abs(static_cast<double>(sizes.scale[slot]));
    const bool scaled = problem.scale_at == ScaleAt::kShrink && size > 0;
    sizes.added_to.push_back(static_cast<float>(scaled ? size * h : h));
  }
  for (std::size_t slot = 0; slot < sizes.scale.size(); ++slot) {
    const double lanes = static_cast<double>(std::max<std::int64_t>(problem.rank[slot], 1));
    const double magnitude = std::abs(applied_scale(problem, sizes.scale[slot]));
    const double factor = std::sqrt(3.0 / lanes) * delta / (magnitude * h);
    sizes.b.push_back({0, static_cast<float>(std::clamp(factor, 0x1p-10, 0x1p12))});
  }
  return sizes;
}

// Slots that the batch uses, whose scale stays: one, drawn, of those with the same scale, for every
// second scale. A value that was written cannot always be read as another, nor only such be right.
std::vector<bool> scaled_as_written(const Problem& problem, std::uint64_t seed) {
  constexpr std::uint64_t kFirst = 1ULL << 32;  // beyond the factors, which are drawn by slot
  std::map<float, std::vector<std::size_t>> slots_of;
  for (const std::int32_t id : problem.plan.active_ids) {
    const auto slot = static_cast<std::size_t>(id);
    slots_of[problem.scale[slot]].push_back(slot);
  }
  std::vector<bool> as_written(static_cast<std::size_t>(problem.slots), false);
  const std::uint64_t stream = stream_of(Draw::kScale);
  bool stays = slots_of.size() == 1 || random_below(seed, stream, kFirst, 2) == 0;
  for (const auto& [scale, slots] : slots_of) {
    as_written[slots[random_below(seed, stream, kFirst + 1, slots.size())]] = stays;
    stays = !stays;
  }
  return as_written;
}

// The scale as written for some slots, the others times a factor in [0.75, 0.97] or [1.03, 1.25]:
// none of these equals a neighbour's or 1.
std::vector<float> uneven_scales(const Problem& problem, std::uint64_t seed) {
  std::vector<float> scales = problem.scale;
  const std::vector<bool> as_written = scaled_as_written(problem, seed);
  for (std::size_t slot = 0; slot < scales.size(); ++slot) {
    const double unit = 2 * random_unit(seed, stream_of(Draw::kScale), slot) - 1;
    const double factor = 1 + std::copysign(0.03, unit) + 0.22 * unit;
    if (!as_written[slot]) {
      scales[slot] = static_cast<float>(static_cast<double>(scales[slot]) * factor);
    }
  }
  return scales;
}

}  // namespace

FillSizes fill_sizes(const Problem& problem, Fill fill, std::uint64_t seed) {
  switch (fill) {
    case Fill::kExact:
      return exact_sizes(problem);
    case Fill::kFineX:
    case Fill::kFineH:
    case Fill::kFineA:
    case Fill::kFineB:
      return fine_sizes(problem);
    case Fill::kBounded:
    case Fill::kUneven:
    case Fill::kUnevenNarrow:
      return real_sizes(problem, 0.6, uneven_scales(problem, seed));
    case Fill::kTiming:
      // Once y is some thousand deltas large, rounding swallows the next one: y stops growing.
      return real_sizes(problem, 0x1p-4, problem.scale);
  }
  return {};
}

}  // namespace lora_bench
