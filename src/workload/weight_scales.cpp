#include "workload/weight_scales.h"

#include <array>
#include <cmath>
#include <limits>

#include "core/bytes.h"
#include "core/dtype.h"
#include "core/random.h"

namespace lora_bench {
namespace {

// What an integer is times where numbers are drawn, and the scale is divided by: the least number
// of the format in every second slot, those of A and of B in turn, and in every second row of x or
// h, where one is all of a slice if all rows have one scale.
float stored_unit(const Problem& problem, Role role, std::int64_t of) {
  const float least = problem.dtype[role] == Dtype::kE4m3 ? 0x1p-9F : 0x1p-16F;
  if (role == problem.activations() && !problem.scales_of_rows().by_token) {
    of /= problem.tokens;
  }
  return (of % 2 == 1) == (role == Role::kA) ? least : 1.0F;
}

// The largest number that is stored: in a bounded fill all that the format has.
float largest_stored(const Problem& problem, Fill fill, Role role) {
  return fill == Fill::kBounded ? static_cast<float>(largest_finite(problem.dtype[role])) : 1.0F;
}

struct ScalePlace {
  Role weights = Role::kA;
  std::int64_t slice = 0, slot = 0, down = 0, across = 0;
};

float exact_scale(std::int64_t turn) {
  constexpr std::array<float, 3> kScales{0.5F, 2.0F, 4.0F};
  return kScales[static_cast<std::size_t>(turn) % kScales.size()];
}

float exact_scale(const ScalePlace& at) {
  return exact_scale(at.slot + at.slice + at.down + 2 * at.across +
                     (at.weights == Role::kB ? 1 : 0));
}

// Of a fine fill: an odd number of so many bits, below 1.
float fine_scale(const RandomStream& random, std::int64_t index) {
  constexpr std::uint64_t kHalf = 1U << (kFineScaleBits - 1);
  const std::uint64_t even = kHalf + random.bits(static_cast<std::uint64_t>(index)) % kHalf / 2 * 2;
  return std::ldexp(static_cast<float>(even + 1), -kFineScaleBits);
}

// Of another fill: of full mantissa, in (0.75, 1.25].
float drawn_scale(const RandomStream& random, std::int64_t index) {
  const auto unit = static_cast<float>(random.bits(static_cast<std::uint64_t>(index)) >> 40);
  constexpr auto kMost = static_cast<float>(kLargestDrawnScale);
  return kMost - 0.5F * (unit * 0x1p-24F);
}

const ElementLaw& law_of_rows(const FillSizes& sizes, Role activations) {
  return activations == Role::kX ? sizes.x : sizes.h;
}

HostTensor stored(const Operand& operand, const std::vector<float>& values) {
  HostTensor tensor{operand.dtype, operand.elements, zero_bytes(operand.bytes())};
  encode(operand.dtype, values, tensor.data.data());
  return tensor;
}

}  // namespace

ElementLaw stored_law(const Problem& problem, const FillSizes& sizes, Fill fill, Role role,
                      std::int64_t of) {
  if (!is_exact(fill)) {
    return {0, largest_stored(problem, fill, role)};
  }
  const ElementLaw& law = role == Role::kB   ? sizes.b[static_cast<std::size_t>(of)]
                          : role == Role::kA ? sizes.a
                                             : law_of_rows(sizes, role);
  return {law.integers, stored_unit(problem, role, of), law.one_in};
}

HostTensor draw_scales(const Problem& problem, const FillSizes& sizes, Fill fill,
                       std::uint64_t seed, const Operand& operand,
                       const std::function<std::int64_t(std::int64_t slot)>& lanes) {
  const bool of_a = operand.role == Role::kAScale;
  const Role weights = of_a ? Role::kA : Role::kB;
  const ScaleBlocks blocks = problem.scales_of(weights, operand.slice);
  const RandomStream random(seed, stream_of(of_a ? Draw::kAScale : Draw::kBScale, operand.slice));
  std::vector<float> values(static_cast<std::size_t>(operand.elements),
                            std::numeric_limits<float>::quiet_NaN());
  for (std::size_t index = 0; index < values.size(); ++index) {
    const auto place = static_cast<std::int64_t>(index);
    const std::int64_t slot = place / blocks.of_slot();
    const std::int64_t down = place % blocks.of_slot() / blocks.across;
    const std::int64_t across = place % blocks.across;
    const std::int64_t first_lane = of_a ? down * blocks.rows : across * blocks.columns;
    if (first_lane >= lanes(slot)) {
      continue;
    }
    const float factor = of_a ? sizes.a.factor : sizes.b[static_cast<std::size_t>(slot)].factor;
    if (is_exact(fill)) {
      const float scale = fill == Fill::kExact
                              ? exact_scale({weights, operand.slice, slot, down, across})
                          : is_fine_of(fill, weights) ? fine_scale(random, place)
                                                      : kPlainScale;
      values[index] = scale * factor / stored_unit(problem, weights, slot);
    } else {
      values[index] = factor / largest_stored(problem, fill, weights) * drawn_scale(random, place);
    }
  }
  return stored(operand, values);
}

HostTensor draw_scales_of_rows(const Problem& problem, const FillSizes& sizes, Fill fill,
                               std::uint64_t seed, const Operand& operand,
                               const std::function<NumbersOfRow(std::int64_t token)>& numbers_of) {
  const Role role = problem.activations();
  const float factor = law_of_rows(sizes, role).factor;
  const ScalesOfRows scales = problem.scales_of_rows();
  const RandomStream random(seed, stream_of(role == Role::kX ? Draw::kXScale : Draw::kHScale));
  std::vector<float> values(static_cast<std::size_t>(operand.elements),
                            std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t index = 0; index < operand.elements; ++index) {
    const std::int64_t row = index / scales.across, across = index % scales.across;
    const std::int64_t first = row / scales.rows * scales.rows;  // of the same x, or slice of h
    const NumbersOfRow of = scales.by_token ? numbers_of(row - first) : NumbersOfRow{};
    if (scales.by_token && across * scales.columns >= of.columns) {
      continue;
    }
    float& value = values[static_cast<std::size_t>(index)];
    if (is_exact(fill)) {
      // The rows of a slice begin with another scale than those of the slice before.
      const std::int64_t of_activations = scales.by_token ? row : row * problem.tokens;
      const float scale = fill == Fill::kExact
                              ? exact_scale(row - first + row / scales.rows + 2 * across)
                          : is_fine_of(fill, role) ? fine_scale(random, index)
                                                   : kPlainScale;
      value = scale * factor / stored_unit(problem, role, of_activations);
    } else {
      value = factor / largest_stored(problem, fill, role) *
              drawn_scale(random, (first + of.token) * scales.across + across);
    }
  }
  return stored(operand, values);
}

double exact_spread_over_k(const Problem& problem) {
  const bool of_a = problem.has_scaled_weights() && problem.scales_of_a().across > 1;
  const bool of_x = problem.has_scaled_x() && problem.scales_of_rows().across > 1;
  return (of_a ? kExactScaleSpread : 1) * (of_x ? kExactScaleSpread : 1);
}

double exact_spread_over_lanes(const Problem& problem) {
  // y0 is as large in a row of the least scale of x or h as in one of the largest, and so may h be,
  // which is a sum of all scales of its row of x.
  double spread = problem.has_scaled_activations() ? kExactScaleSpread : 1;
  if (problem.has_scaled_weights()) {
    spread *= has_shrink(problem.op) && problem.scales_of_a().down > 1 ? kExactScaleSpread : 1;
    const bool by_lanes =
        problem.weights_scale == WeightsScale::kBlock && problem.max_rank > problem.block_columns;
    spread *= has_expand(problem.op) && by_lanes ? kExactScaleSpread : 1;
  }
  return spread;
}

}  // namespace lora_bench
