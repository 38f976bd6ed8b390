#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "support/workload_case.h"
#include "workload/batch.h"
#include "workload/tensors.h"

using namespace lora_bench;

using Ranks = std::vector<std::int64_t>;

TEST_CASE("listed ranks and scales cycle over the slots") {
  Case spec = workload_case(1, 5);
  spec.adapters.rank.list = {8, 0, 64};
  spec.adapters.max_rank = 128;
  spec.adapters.scale = {2.0, 0.5};
  const Adapters adapters = draw_adapters(spec);
  CHECK(adapters.rank == Ranks{8, 0, 64, 8, 0});
  CHECK(adapters.scale == std::vector<float>{2.0F, 0.5F, 2.0F, 0.5F, 2.0F});
  CHECK(adapters.max_rank == 128);
}

TEST_CASE("max_rank is never below the largest rank, and scale is 1 unless said") {
  Case spec = workload_case(1, 2);
  spec.adapters.rank.list = {16};
  spec.adapters.max_rank = 0;
  CHECK(draw_adapters(spec).max_rank == 16);
  CHECK(draw_adapters(spec).scale == std::vector<float>{1.0F, 1.0F});
}

TEST_CASE("shares of ranks are exact to the largest remainder and dealt by seed") {
  Case spec = workload_case(1, 10);
  spec.adapters.rank = {.list = {}, .shares = {{8, 0.5}, {16, 0.25}, {64, 0.25}}};
  Ranks first = draw_adapters(spec).rank;
  CHECK(std::count(first.begin(), first.end(), 8) == 5);
  CHECK(std::count(first.begin(), first.end(), 16) == 3);
  CHECK(std::count(first.begin(), first.end(), 64) == 2);
  CHECK_FALSE(std::is_sorted(first.begin(), first.end()));
  spec.seed = 2;
  Ranks second = draw_adapters(spec).rank;
  CHECK(first != second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  CHECK(first == second);
}

TEST_CASE("a problem takes shapes from the case and rows from the batch") {
  Case spec = workload_case(3, 4);
  spec.layer.offset_start = 2;
  spec.layer.x_stride = 50;
  spec.layer.y_stride = 40;
  spec.adapters.bias = true;
  const Problem problem = problem_of(spec);
  CHECK(problem.tokens == 3);
  CHECK(problem.plan.tokens() == 3);
  std::vector<std::string> told;
  for (const Operand& operand : operands_of(problem)) {
    told.push_back(label(operand) + " " + std::to_string(operand.elements));
  }
  CHECK(told == std::vector<std::string>{"x 150", "a[0] 1536", "b[0] 768", "bias[0] 96",
                                         "a[1] 1536", "b[1] 256", "bias[1] 32", "h 48", "y 120"});
  CHECK(tensor_bytes(problem) ==
        2 * (3 * 50 + 2 * 4 * 8 * 48 + 4 * 32 * 8 + 4 * 32 + 3 * 40) + 4 * 48 + 4 * 4);
}

TEST_CASE("an operand that the op has not counts no elements") {
  Case spec = workload_case(3, 4);
  spec.adapters.bias = true;
  spec.op = Op::kShrink;
  const auto has = [&](Role role, std::int64_t slice = -1) {
    return operand_of(problem_of(spec), role, slice).elements > 0;
  };
  CHECK_FALSE(has(Role::kY));
  CHECK_FALSE(has(Role::kB, 0));
  CHECK_FALSE(has(Role::kBias, 1));
  CHECK(has(Role::kA, 1));
  CHECK(operand_of(problem_of(spec), Role::kH).written);
  spec.op = Op::kEmbedding;
  CHECK_FALSE(has(Role::kX));
  CHECK_FALSE(has(Role::kA, 0));
  CHECK(operand_of(problem_of(spec), Role::kH).elements == 2 * 3 * 8);
  CHECK_FALSE(operand_of(problem_of(spec), Role::kH).written);
}

TEST_CASE("sizes that 64 bits cannot count are refused, those above 32 bits are counted") {
  Case spec = workload_case(1, 4);
  Problem problem = problem_of(spec);
  problem.slots = 1 << 20;
  problem.in_features = 28672;
  CHECK(operand_of(problem, Role::kA, 0).elements == std::int64_t{28672} * 8 * (1 << 20));
  problem.in_features = std::int64_t{1} << 60;
  CHECK_THROWS_AS(static_cast<void>(operands_of(problem)), CaseError);
  problem.in_features = std::int64_t{1} << 39;
  CHECK_THROWS_AS(static_cast<void>(tensor_bytes(problem)), CaseError);
}
