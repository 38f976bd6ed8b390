#pragma once

#include <cstdint>
#include <span>

#include "ops/operands.h"

namespace lora_bench {

// A lane of A or an output of B of one slot, whose rank says where packed lanes lie.
struct RowOfWeights {
  Role weights = Role::kA;
  std::int64_t slice = 0, slot = 0, rank = 0, row = 0;
};

// `count` numbers of a row from `first` on in fp32, in host memory: as they are stored, or of eight
// bits times their scales, each rounded once.
void read_weights(const Problem& problem, const Operands& operands, const RowOfWeights& row,
                  std::int64_t first, std::int64_t count, float* to);

// The same of a row of x, for one slice.
void read_x(const Problem& problem, const Operands& operands, std::int64_t slice,
            std::int64_t token, std::int64_t first, std::int64_t count, float* to);

// A row of h of one slice, of a token whose adapter has that rank.
struct RowOfH {
  std::int64_t slice = 0, token = 0, rank = 0;
};

// All of its lanes likewise.
void read_h(const Problem& problem, const Operands& operands, const RowOfH& row, float* to);

// The scale of numbers of which the largest magnitude is `amax`.
[[nodiscard]] float scale_for(const QuantiserRule& rule, float amax);
// Writes x / scale, or x times the nearest of 1 / scale, held within the largest of the format.
void convert_by(const QuantiserRule& rule, float scale, std::span<float> x);
// The lanes of a row of a slice of h below the rank, each as its code times its scale.
void quantise_lanes(const HiddenQuantiser& quantiser, std::span<float> lanes);

}  // namespace lora_bench
