#pragma once

#include <cstdint>

#include "core/random.h"
#include "workload/problem.h"

// Draws small numbers one after the other, for tests that walk random cases.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(lora_bench::random_below(
                       seed_, 0, next_++, static_cast<std::uint64_t>(most - least + 1)));
  }
  bool coin() { return between(0, 1) == 1; }

 private:
  std::uint64_t seed_;
  std::uint64_t next_ = 0;
};

// A linear of 12 tokens over 3 adapters in bf16, one row in four without adapter.
inline lora_bench::Problem linear_problem() {
  lora_bench::Problem problem;
  problem.op = lora_bench::Op::kLinear;
  problem.dtype = lora_bench::OperandDtypes(lora_bench::Dtype::kBf16);
  problem.tokens = 12;
  problem.in_features = 96;
  problem.widths = {24, 8};
  problem.offset_start = 2;
  problem.x_stride = 96;
  problem.y_stride = 36;
  problem.slots = 4;
  problem.max_rank = 8;
  problem.rank = {8, 3, 8, 5};
  problem.scale = {2, 0.5F, 1, 1};
  problem.plan = lora_bench::make_plan(
      std::vector<std::int32_t>{0, 1, 3, -1, 1, 0, 3, -1, 3, 1, 0, -1}, problem.slots);
  return problem;
}

// Any legal small case, the degenerate ones included.
inline lora_bench::Problem random_problem(std::uint64_t seed) {
  using namespace lora_bench;
  Draws draw(seed);
  Problem problem;
  problem.op = static_cast<Op>(draw.between(0, 4));
  problem.dtype = lora_bench::OperandDtypes(static_cast<Dtype>(draw.between(0, 2)),
                                            problem.dtype[lora_bench::Role::kH]);
  problem.dtype[lora_bench::Role::kH] =
      draw.coin() ? Dtype::kFp32 : problem.dtype[lora_bench::Role::kY];
  problem.scale_at = draw.coin() ? ScaleAt::kShrink : ScaleAt::kExpand;
  problem.add_inputs = draw.coin();
  problem.bias = has_expand(problem.op) && draw.coin();
  problem.tokens = draw.between(0, 40);
  problem.in_features = draw.between(1, 200);
  const std::int64_t slices = problem.op == Op::kLogits ? 1 : draw.between(1, 3);
  problem.offset_start = draw.coin() ? 0 : draw.between(1, 5);
  problem.y_stride = problem.offset_start + draw.between(0, 3);
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    problem.widths.push_back(draw.between(0, 9) == 0 ? 0 : draw.between(1, 40));
    problem.y_stride += problem.widths.back();
  }
  problem.x_stride = problem.in_features + draw.between(0, 3);
  problem.slots = draw.between(1, 6);
  problem.max_rank = draw.between(1, 24);
  for (std::int64_t slot = 0; slot < problem.slots; ++slot) {
    problem.rank.push_back(draw.between(0, problem.max_rank));
    problem.scale.push_back(static_cast<float>(draw.between(1, 40)) / 16);
  }
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    ids.push_back(static_cast<std::int32_t>(draw.between(-1, problem.slots - 1)));
  }
  problem.plan = make_plan(ids, problem.slots);
  return problem;
}
