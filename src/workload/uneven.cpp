#include "workload/uneven.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "workload/fill_sizes.h"

namespace lora_bench {
namespace {

constexpr double kFp16Limit = 65504;
// Elements below this are subnormal in fp16, with six bits or more of theirs left.
constexpr double kSubnormalFp16 = 0x1p-18;
constexpr std::int64_t kKinds = 16;
constexpr std::int64_t kZeroOf = 16;
// How far a row looks back for one that it can repeat.
constexpr std::int64_t kLookBack = 64;
// Indices of what is drawn once for a lane, a feature, a row, a column.
constexpr std::int64_t kLanes = std::int64_t{1} << 20;
constexpr std::int64_t kFeatures = std::int64_t{1} << 32;
constexpr std::int64_t kPlaces = std::int64_t{1} << 40;
constexpr std::int64_t kColumns = std::int64_t{1} << 44;

float power_of_two_below(double value) {
  return static_cast<float>(std::exp2(std::floor(std::log2(value))));
}

bool is_fp16(const Problem& problem, Role one, Role other) {
  return problem.dtype[one] == Dtype::kFp16 || problem.dtype[other] == Dtype::kFp16;
}

// Times which an h that fp16 stores may grow, and stays finite after sixteen deviations.
double growth_of_h(const Problem& problem, const FillSizes& sizes) {
  if (problem.dtype[Role::kH] != Dtype::kFp16 || !has_shrink(problem.op)) {
    return 0x1p40;
  }
  constexpr double kDeviations = 16;
  const double k = static_cast<double>(std::max<std::int64_t>(problem.in_features, 1));
  double h = static_cast<double>(sizes.a.factor) * std::sqrt(k) / 3;
  double scale = 1;
  for (const float of_slot : sizes.scale) {
    scale = std::max(scale, std::abs(static_cast<double>(of_slot)));
  }
  h *= problem.scale_at == ScaleAt::kShrink ? scale : 1;
  return std::max(1.0, static_cast<double>(power_of_two_below(kFp16Limit / kDeviations / h)));
}

// Times which numbers of the size of 1 may grow and shrink in eight bits.
double room_of_eight_bits(const Problem& problem) {
  const Role weights = has_shrink(problem.op) ? Role::kA : Role::kB;
  return problem.dtype[weights] == Dtype::kE4m3 ? 0x1p5 : 0x1p12;
}

// Times which numbers of a row of the size of 1 may grow, and times which small rows have less.
struct RoomOfRows {
  double growth = 0x1p40, small = 0x1p-15, tiny = 0x1p-30;
};

// Times which lanes of an h of eight bits grow or shrink, in rows that do so too.
constexpr double kLanesOfEightBits = 0x1p3;

RoomOfRows room_of_rows(const Problem& problem) {
  if (problem.has_scaled_activations()) {
    const RoomOfRows room = problem.dtype[problem.activations()] == Dtype::kE4m3
                                ? RoomOfRows{0x1p7, 0x1p-4, 0x1p-7}
                                : RoomOfRows{0x1p14, 0x1p-10, 0x1p-15};
    const double lanes = problem.has_scaled_h() ? kLanesOfEightBits : 1;
    return {room.growth / lanes, room.small, room.tiny * lanes};
  }
  return is_fp16(problem, Role::kX, Role::kY) ? RoomOfRows{.tiny = 0x1p-18} : RoomOfRows{};
}

// Times which lanes of h grow, and their columns of B shrink.
double larger_lanes(const Problem& problem) {
  if (problem.has_scaled_h()) {
    return kLanesOfEightBits;
  }
  if (problem.dtype[Role::kH] == Dtype::kFp16) {
    return has_shrink(problem.op) ? 1 : 0x1p3;
  }
  if (problem.has_scaled_weights()) {
    return room_of_eight_bits(problem);
  }
  return is_fp16(problem, Role::kA, Role::kB) ? 0x1p14 : 0x1p24;
}

// Times which lanes of h shrink, and their columns of B grow.
double smaller_lanes(const Problem& problem, const FillSizes& sizes) {
  if (problem.has_scaled_h()) {
    return kLanesOfEightBits;
  }
  if (problem.has_scaled_weights()) {
    return room_of_eight_bits(problem);
  }
  if (!is_fp16(problem, Role::kA, Role::kB)) {
    return 0x1p24;
  }
  double largest_b = 0x1p-10;
  for (const ElementLaw& law : sizes.b) {
    largest_b = std::max(largest_b, static_cast<double>(law.factor));
  }
  const double left = has_shrink(problem.op) ? static_cast<double>(sizes.a.factor) : 1;
  const double wanted = std::min(left / kSubnormalFp16, kFp16Limit / 4 / largest_b);
  return wanted < 1 ? 1 : static_cast<double>(power_of_two_below(wanted));
}

}  // namespace

enum class Uneven::Kind : std::uint8_t {
  kPlain,
  kZero,
  kLarge,
  kHuge,
  kSmall,
  kTiny,
  kOutlier,          // one element
  kOutlierFeatures,  // the same elements in all rows of this kind
  kRepeatsLast,
  kRepeatsOwnAdapter,
  kRepeatsOther,
  kHalfZero,
  kOnlyOne,
  kConstant,
  kOfZeroY,
  kZeroXAndY,
};

void bend_row(const RowBend& bend, const RandomStream& random, std::uint64_t first_index,
              std::span<float> row) {
  const float first = row.empty() ? 0 : std::fabs(row[0]);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    // The lowest bits: the value comes from the highest.
    const auto low = static_cast<std::int64_t>(random.bits(first_index + i) & 0xffffU);
    float value = bend.constant ? std::copysign(first, row[i]) : row[i];
    value *= bend.factor * (bend.of_element == nullptr ? 1.0F : (*bend.of_element)[i]);
    if (at == bend.outlier || (bend.far_of > 0 && low % bend.far_of == 1)) {
      value *= bend.far_factor;
    }
    const bool zero = (bend.zero_of > 0 && low % bend.zero_of == 0 && at != bend.outlier) ||
                      low / 256 % bend.kept_of != 0 || (bend.only >= 0 && at != bend.only);
    row[i] = zero ? std::copysign(0.0F, value) : value;
  }
}

Uneven::Uneven(const Problem& problem, const FillSizes& sizes, Fill fill, std::uint64_t seed)
    : problem_(problem), adapters_(slots_of_x_rows(problem)), sizes_(sizes), seed_(seed) {
  const bool half = is_fp16(problem, Role::kX, Role::kY);
  const bool narrow = fill == Fill::kUnevenNarrow;
  const RoomOfRows room = room_of_rows(problem);
  const double growth = narrow ? 1 : std::min(growth_of_h(problem, sizes), room.growth);
  const auto at_most = [&](double factor) { return static_cast<float>(std::min(factor, growth)); };
  large_ = at_most(0x1p11);
  huge_ = at_most(half ? 0x1p11 : 0x1p18);
  outlier_ = at_most(0x1p10);
  small_ = static_cast<float>(room.small);
  tiny_ = static_cast<float>(room.tiny);
  far_bias_ = is_fp16(problem, Role::kBias, Role::kY) ? 0x1p11F : 0x1p18F;
  features_.assign(static_cast<std::size_t>(problem.in_features), 1.0F);
  constexpr std::int64_t kLeastFeatures = 8;
  for (std::int64_t k = 0; problem.in_features >= kLeastFeatures && k < problem.in_features; ++k) {
    features_[static_cast<std::size_t>(k)] = below(kFeatures + k, kZeroOf) == 0 ? 0.0F : 1.0F;
  }
  const auto up = static_cast<float>(narrow ? 1 : larger_lanes(problem));
  const auto down = static_cast<float>(smaller_lanes(problem, sizes));
  lanes_up_.assign(static_cast<std::size_t>(problem.max_rank), 1.0F);
  lanes_down_ = lanes_added_ = lanes_up_;
  for (std::size_t lane = 0; lane < lanes_up_.size(); ++lane) {
    const std::int64_t kind = kind_of_lane(static_cast<std::int64_t>(lane));
    const float factor = kind == 0 ? up : kind == 1 ? 1 / down : 1.0F;
    lanes_up_[lane] = kind == 2 && lane > 1 ? 0.0F : factor;  // a lane of zeros
    lanes_added_[lane] = factor;
    lanes_down_[lane] = 1 / factor;
  }
}

std::int64_t Uneven::below(std::int64_t index, std::int64_t bound) const {
  return static_cast<std::int64_t>(random_below(seed_, stream_of(Draw::kUneven),
                                                static_cast<std::uint64_t>(index),
                                                static_cast<std::uint64_t>(bound)));
}

// Dealt, not drawn: any eight lanes that begin at a multiple of eight hold all kinds.
std::int64_t Uneven::kind_of_lane(std::int64_t lane) const {
  constexpr std::int64_t kKindsOfLanes = 8;
  return (lane * 3 + lane / kKindsOfLanes * 5 + below(kLanes, kKindsOfLanes)) % kKindsOfLanes;
}

// Dealt, not drawn: any sixteen rows in a row hold all kinds.
Uneven::Kind Uneven::kind_of(std::int64_t token) const {
  return static_cast<Kind>((token * 7 + token / kKinds * 3 + below(0, kKinds)) % kKinds);
}

std::int64_t Uneven::source_of(std::int64_t token) const {
  const auto adapter = [&](std::int64_t row) { return adapters_[static_cast<std::size_t>(row)]; };
  const auto repeats = [&](std::int64_t row) {
    const Kind kind = kind_of(row);
    return kind == Kind::kRepeatsLast || kind == Kind::kRepeatsOwnAdapter ||
           kind == Kind::kRepeatsOther;
  };
  if (!repeats(token)) {
    return token;
  }
  const Kind kind = kind_of(token);
  for (std::int64_t row = token - 1; row >= 0 && row >= token - kLookBack; --row) {
    const bool fits = kind == Kind::kRepeatsLast ||
                      (adapter(row) == adapter(token)) == (kind == Kind::kRepeatsOwnAdapter);
    if (fits && adapter(row) != kNoAdapter && !repeats(row)) {
      return row;
    }
  }
  return token;
}

bool Uneven::pair_has_one_b(std::int64_t slot) const {
  return (slot / 2 + below(2, 2)) % 2 == 1 && slot / 2 * 2 + 1 < problem_.slots;
}

std::int64_t Uneven::slot_of_a(std::int64_t slot) const {
  return pair_has_one_b(slot) ? slot : slot / 2 * 2;
}

std::int64_t Uneven::slot_of_b(std::int64_t slot) const {
  return pair_has_one_b(slot) ? slot / 2 * 2 : slot;
}

const ElementLaw& Uneven::law_of_b(std::int64_t slot) const {
  const ElementLaw& own = sizes_.b[static_cast<std::size_t>(slot)];
  if (!pair_has_one_b(slot)) {
    return own;
  }
  const ElementLaw& others = sizes_.b[static_cast<std::size_t>(slot ^ 1)];
  return others.factor < own.factor ? others : own;
}

float Uneven::factor_of(Kind kind) const {
  switch (kind) {
    case Kind::kLarge:
      return large_;
    case Kind::kHuge:
      return huge_;
    case Kind::kSmall:
      return small_;
    case Kind::kTiny:
      return tiny_;
    default:
      return 1;
  }
}

RowBend Uneven::row(std::int64_t token, std::int64_t elements) const {
  const std::int64_t source = source_of(token);
  const Kind kind = kind_of(source);
  RowBend bend;
  bend.factor = kind == Kind::kZero || kind == Kind::kZeroXAndY ? 0 : factor_of(kind);
  bend.zero_of = kZeroOf;
  bend.far_factor = outlier_;
  const std::int64_t place = elements == 0 ? -1 : below(kPlaces + source, elements);
  if (kind == Kind::kOutlier) {
    bend.outlier = place;
  } else if (kind == Kind::kOutlierFeatures) {
    bend.outlier = elements == 0 ? -1 : below(1, elements);
  } else if (kind == Kind::kOnlyOne) {
    bend.only = place;
  }
  bend.kept_of = kind == Kind::kHalfZero ? 2 : 1;
  bend.constant = kind == Kind::kConstant;
  return bend;
}

RowBend Uneven::row_of_x(std::int64_t token) const {
  RowBend bend = row(token, problem_.in_features);
  bend.of_element = &features_;
  return bend;
}

RowBend Uneven::row_of_h(std::int64_t token, std::int64_t lanes) const {
  RowBend bend = row(token, lanes);
  bend.of_element = &lanes_up_;
  return bend;
}

RowBend Uneven::row_of_added_h(std::int64_t token) const {
  RowBend bend = row_of_y(token);
  bend.of_element = &lanes_added_;
  return bend;
}

RowBend Uneven::row_of_y(std::int64_t token) const {
  const Kind kind = kind_of(token);
  RowBend bend;
  bend.zero_of = kZeroOf;
  bend.factor = factor_of(kind_of(source_of(token)));
  bend.factor = kind == Kind::kOfZeroY || kind == Kind::kZeroXAndY ? 0 : bend.factor;
  return bend;
}

RowBend Uneven::lane_of_a(std::int64_t lane) const {
  RowBend bend;
  bend.zero_of = kZeroOf;
  bend.factor = lanes_up_[static_cast<std::size_t>(lane)];
  return bend;
}

RowBend Uneven::column_of_b(std::int64_t slot, std::int64_t column, std::int64_t width) const {
  RowBend bend;
  bend.zero_of = kZeroOf;
  bend.factor = below(kColumns + slot * width + column, kZeroOf) == 0 ? 0.0F : 1.0F;
  bend.of_element = &lanes_down_;
  return bend;
}

RowBend Uneven::bias() const {
  constexpr std::int64_t kFarOf = 64;
  RowBend bend;
  bend.zero_of = kZeroOf;
  bend.far_of = kFarOf;
  bend.far_factor = far_bias_;
  return bend;
}

}  // namespace lora_bench
