#pragma once

#include <cstdint>

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

}  // namespace lora_bench
