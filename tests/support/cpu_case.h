#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "ops/backend.h"
#include "workload/tensors.h"

namespace lora_bench::test {

// Draws small numbers for random problems, one after another.
struct Dice {
  std::uint64_t seed = 1;
  std::uint64_t throws = 0;
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(seed, 77, throws++, static_cast<std::uint64_t>(bound)));
  }
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(values.size())))];
  }
};

// Any legal problem: every op, dtype (in one of four of each operand), gap, stride, odd size, empty
// part.
inline Problem random_problem(std::uint64_t seed) {
  Dice dice{seed};
  Problem problem;
  problem.op = dice.one_of<Op>(
      {Op::kShrink, Op::kExpand, Op::kLinear, Op::kLinear, Op::kEmbedding, Op::kLogits});
  problem.dtype =
      OperandDtypes(dice.one_of<Dtype>({Dtype::kFp32, Dtype::kBf16, Dtype::kBf16, Dtype::kFp16}),
                    problem.dtype[Role::kH]);
  problem.dtype[Role::kH] = dice.below(3) == 0 ? problem.dtype[Role::kY] : Dtype::kFp32;
  problem.scale_at = dice.one_of<ScaleAt>({ScaleAt::kShrink, ScaleAt::kExpand});
  problem.add_inputs = dice.below(3) != 0;
  problem.bias = has_expand(problem.op) && dice.below(2) == 0;
  problem.rank0_bias = problem.bias && problem.scale_at == ScaleAt::kShrink;
  problem.inputs = problem.add_inputs && problem.slots > 2 ? Inputs::kPerSlice : Inputs::kShared;
  problem.shrink_adds = problem.op == Op::kShrink && problem.add_inputs;
  problem.tokens = dice.one_of<std::int64_t>({0, 1, 2, 7, 33, 70, 230});
  problem.in_features = dice.one_of<std::int64_t>({1, 3, 16, 65, 512, 1031});
  const std::int64_t slices = problem.op == Op::kLogits ? 1 : 1 + dice.below(3);
  std::int64_t columns = 0;
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    problem.widths.push_back(dice.one_of<std::int64_t>({0, 1, 5, 64, 67, 200}));
    columns += problem.widths.back();
  }
  problem.offset_start = dice.one_of<std::int64_t>({0, 0, 3});
  problem.x_stride = problem.in_features + dice.one_of<std::int64_t>({0, 0, 5});
  problem.y_stride = problem.offset_start + columns + dice.one_of<std::int64_t>({0, 0, 7});
  problem.slots = 1 + dice.below(5);
  for (std::int64_t slot = 0; slot < problem.slots; ++slot) {
    problem.rank.push_back(dice.one_of<std::int64_t>({0, 1, 3, 8, 16, 17, 37}));
    problem.max_rank = std::max(problem.max_rank, problem.rank.back());
    problem.scale.push_back(0.5F + static_cast<float>(slot));
  }
  problem.max_rank += dice.one_of<std::int64_t>({0, 0, 3});
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    ids.push_back(static_cast<std::int32_t>(dice.below(problem.slots + 1)) - 1);
  }
  problem.plan = make_plan(ids, problem.slots);
  const bool unlike = dice.below(4) == 0;
  for (Dtype& dtype : problem.dtype.of_role) {
    dtype = unlike ? dice.one_of<Dtype>({Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) : dtype;
  }
  return problem;
}

// What one launch on the host leaves: all of h and y.
struct HostResult {
  HostTensor h, y;
  bool operator==(const HostResult& other) const {
    return h.data == other.h.data && y.data == other.y.data;
  }
};

inline HostResult launch_on_host(const Backend& backend, const Problem& problem,
                                 const Tensors& tensors) {
  HostResult result{tensors.h, tensors.y};
  Operands operands;
  operands.x = tensors.x.data.data();
  operands.x_scale = tensors.x_scale.data.data();
  operands.h_scale = tensors.h_scale.data.data();
  for (std::size_t i = 0; i < problem.widths.size(); ++i) {
    operands.a.push_back(tensors.a[i].data.data());
    operands.b.push_back(tensors.b[i].data.data());
    if (problem.has_scaled_weights()) {
      operands.a_scale.push_back(tensors.a_scale[i].data.data());
      operands.b_scale.push_back(tensors.b_scale[i].data.data());
    }
    operands.bias.push_back(tensors.bias.empty() ? nullptr : tensors.bias[i].data.data());
  }
  operands.h = result.h.data.data();
  operands.y = result.y.data.data();
  const std::vector<std::int32_t> rank(problem.rank.begin(), problem.rank.end());
  operands.adapter_of_token = problem.plan.adapter_of_token.data();
  operands.token_order = problem.plan.token_order.data();
  operands.active_ids = problem.plan.active_ids.data();
  operands.group_starts = problem.plan.group_starts.data();
  operands.rank = rank.data();
  operands.scale = tensors.scale.data();
  backend.launch(problem, operands, Stream{});
  return result;
}

inline double value(const HostTensor& tensor, std::int64_t index) {
  return static_cast<double>(load(tensor.dtype, tensor.data.data(), index));
}

// The op as its definition reads, in fp64, one rounding where a number is stored.
inline HostResult by_definition(const Problem& problem, const Tensors& tensors) {
  HostResult result{tensors.h, tensors.y};
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    const std::int64_t slot = problem.plan.adapter_of_token[static_cast<std::size_t>(token)];
    const std::int64_t rank = slot < 0 ? 0 : problem.rank[static_cast<std::size_t>(slot)];
    std::int64_t start = problem.offset_start;
    for (std::size_t i = 0; i < problem.widths.size(); ++i) {
      const std::int64_t width = problem.widths[i];
      const double scale =
          slot < 0 ? 1 : static_cast<double>(tensors.scale[static_cast<std::size_t>(slot)]);
      const std::int64_t x_row = problem.x_row(static_cast<std::int64_t>(i), token);
      const std::int64_t of_h =
          (static_cast<std::int64_t>(i) * problem.tokens + token) * problem.max_rank;
      for (std::int64_t r = 0; r < rank && width > 0 && has_shrink(problem.op); ++r) {
        double sum = 0;
        for (std::int64_t k = 0; k < problem.in_features; ++k) {
          sum += value(tensors.x, x_row * problem.x_stride + k) *
                 value(tensors.a[i], (slot * problem.max_rank + r) * problem.in_features + k);
        }
        sum *= problem.scale_at == ScaleAt::kShrink ? scale : 1;
        sum += problem.adds_to_h() ? value(tensors.h, of_h + r) : 0;
        store(result.h.dtype, result.h.data.data(), of_h + r, static_cast<float>(sum));
      }
      const bool acts = problem.acts(static_cast<std::int32_t>(slot));
      for (std::int64_t n = 0; n < width && acts && has_expand(problem.op); ++n) {
        double sum = 0;
        for (std::int64_t r = 0; r < rank; ++r) {
          sum += value(result.h, of_h + r) *
                 value(tensors.b[i], (slot * width + n) * problem.max_rank + r);
        }
        sum *= problem.scale_at == ScaleAt::kExpand ? scale : 1;
        sum += problem.has_bias(static_cast<std::int64_t>(i))
                   ? value(tensors.bias[i], slot * width + n)
                   : 0;
        const std::int64_t at = token * problem.y_stride + start + n;
        sum += problem.add_inputs ? value(tensors.y, at) : 0;
        store(result.y.dtype, result.y.data.data(), at, static_cast<float>(sum));
      }
      start += width;
    }
  }
  return result;
}

inline std::string describe(const Problem& problem) {
  std::string text = std::string(name(problem.op)) + " " +
                     std::string(name(problem.dtype[Role::kY])) + " h " +
                     std::string(name(problem.dtype[Role::kH])) + " tokens " +
                     std::to_string(problem.tokens) + " K " + std::to_string(problem.in_features);
  for (const std::int64_t width : problem.widths) {
    text += " N " + std::to_string(width);
  }
  for (const std::int64_t rank : problem.rank) {
    text += " r " + std::to_string(rank);
  }
  return text;
}

}  // namespace lora_bench::test
