#pragma once

#include <cstdint>
#include <vector>

#include "reference/reference.h"

// A step small enough to compute by hand, in fp32, for tests of the oracle. Every array is written
// out as it lies in memory.
struct ReferenceCase {
  std::vector<std::int32_t> adapter_of_token;
  std::vector<std::int64_t> rank;
  std::vector<float> scale;
  std::vector<float> x, h, y;
  std::vector<std::vector<float>> a, b, bias;
  lora_bench::reference::Problem problem;

  // Points the problem at the arrays; call it after the last change of them.
  const lora_bench::reference::Problem& ready() {
    problem.numbers = lora_bench::reference::all_of(lora_bench::reference::Number::kFp32);
    problem.tokens = static_cast<std::int64_t>(adapter_of_token.size());
    problem.slots = static_cast<std::int64_t>(rank.size());
    problem.adapter_of_token = adapter_of_token;
    problem.rank = rank;
    problem.scale = scale;
    problem.x = x.data();
    problem.h = h.data();
    problem.y = y.data();
    const auto point = [](std::vector<const void*>& to, const auto& from) {
      to.clear();
      for (const auto& array : from) {
        to.push_back(array.data());
      }
    };
    point(problem.a, a);
    point(problem.b, b);
    point(problem.bias, bias);
    return problem;
  }
};

// Two tokens (adapter 0, none), K = 2, rank 1 of 2 stored lanes, one slice of width 2 at column 1
// of rows of 4: h = 3 * (1*5 + 2*7) = 57, delta = (57*2, 57*-1) = (114, -57), y0 = 10 * (column +
// 1).
inline ReferenceCase small_case() {
  ReferenceCase small;
  small.adapter_of_token = {0, -1};
  small.rank = {1};
  small.scale = {3};
  small.x = {1, 2, 100, 100};
  small.a = {{5, 7, 1000, 1000}};
  small.b = {{2, 1000, -1, 1000}};
  small.y = {10, 20, 30, 40, 50, 60, 70, 80};
  small.problem.in_features = 2;
  small.problem.x_stride = 2;
  small.problem.y_stride = 4;
  small.problem.offset_start = 1;
  small.problem.max_rank = 2;
  small.problem.widths = {2};
  return small;
}
