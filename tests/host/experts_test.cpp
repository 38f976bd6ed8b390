#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.h"
#include "measure/ceilings.h"
#include "ops/backends.h"
#include "reference/reference.h"
#include "verify/groundwork.h"
#include "verify/step.h"
#include "verify/verify.h"
#include "workload/excerpt.h"
#include "workload/semantics.h"

using namespace lora_bench;

namespace {

// Two adapters with three experts each and two choices: token 0 has adapter 1 and experts 2 and 0,
// token 1 none, token 2 adapter 0, whose expert 1 is elsewhere, and expert 2, token 3 adapter 1 and
// experts 2 and 1.
Case experts_case(ExpertsPart part) {
  Case spec;
  spec.scenario = "experts";
  spec.layer.name = "custom";
  spec.layer.in_features = 24;
  spec.layer.widths =
      part == ExpertsPart::kW13 ? std::vector<std::int64_t>{16, 8} : std::vector<std::int64_t>{20};
  spec.batch.decode = 4;
  spec.adapters.slots = 2;
  spec.adapters.rank.list = {4, 3};
  spec.adapters.max_rank = 4;
  spec.adapters.scale = {2.0, 0.5};
  spec.experts.count = 3;
  spec.experts.top_k = 2;
  spec.experts.part = part;
  return spec;
}

Batch batch_by_hand() {
  Batch batch;
  batch.adapter_of_token = {1, -1, 0, 1};
  batch.expert_of_choice = {2, 0, 1, 2, -1, 2, 2, 1};
  batch.weight_of_choice = {0.75F, 0.25F, 0.5F, 0.5F, 0.3F, 0.7F, 0.6F, 0.4F};
  return batch;
}

Problem problem_by_hand(ExpertsPart part, Op op = Op::kLinear,
                        WeightAt weight_at = WeightAt::kOutput) {
  Case spec = experts_case(part);
  spec.op = op;
  spec.experts.weight_at = weight_at;
  return make_problem(spec, batch_by_hand(), draw_adapters(spec));
}

Verdict verdict_of(const Backend& backend, const Problem& problem) {
  Groundwork groundwork(problem, 7, std::int64_t{1} << 26);
  const std::unique_ptr<Memory> memory = make_host_memory();
  VerifyOptions options;
  options.relations = true;
  options.seed = 7;
  return verify(groundwork, backend, *memory, options);
}

}  // namespace

TEST_CASE("a pair of a token and an expert is a row, and an expert of an adapter a slot") {
  const Problem problem = problem_by_hand(ExpertsPart::kW13);
  CHECK(problem.tokens == 8);
  CHECK(problem.slots == 6);
  CHECK(problem.rank == std::vector<std::int64_t>{4, 4, 4, 3, 3, 3});
  CHECK(problem.scale == std::vector<float>{2, 2, 2, 0.5, 0.5, 0.5});
  CHECK(problem.plan.adapter_of_token == std::vector<std::int32_t>{5, 3, -1, -1, -1, 2, 5, 4});
  CHECK(problem.route.token_of_row == std::vector<std::int32_t>{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK_FALSE(problem.has_factors());
  CHECK(operand_of(problem, Role::kX).shape == std::vector<std::int64_t>{4, 24});
  CHECK(operand_of(problem, Role::kY).shape == std::vector<std::int64_t>{8, 24});
}

TEST_CASE("each pair has a row of x of its own in w2, and the router's weight") {
  const Problem problem = problem_by_hand(ExpertsPart::kW2);
  CHECK_FALSE(problem.shares_x());
  CHECK(operand_of(problem, Role::kX).shape == std::vector<std::int64_t>{8, 24});
  CHECK(problem.route.factor_of_row == batch_by_hand().weight_of_choice);
  CHECK(operand_of(problem, Role::kFactor).shape == std::vector<std::int64_t>{8, 1});
}

TEST_CASE("the router's weight is multiplied where the scenario says, and nowhere else") {
  for (const ExpertsPart part : {ExpertsPart::kW13, ExpertsPart::kW2}) {
    for (const WeightAt at : {WeightAt::kInput, WeightAt::kOutput, WeightAt::kNone}) {
      const bool here = at == (part == ExpertsPart::kW13 ? WeightAt::kInput : WeightAt::kOutput);
      CHECK(problem_by_hand(part, Op::kLinear, at).has_factors() == here);
      CHECK(problem_by_hand(part, Op::kExpand, at).has_factors() == here);
      CHECK_FALSE(problem_by_hand(part, Op::kShrink, at).has_factors());
    }
  }
}

TEST_CASE("an op without a shrink has a row of h for each pair") {
  CHECK_FALSE(problem_by_hand(ExpertsPart::kW13, Op::kExpand).shares_x());
  CHECK(operand_of(problem_by_hand(ExpertsPart::kW13, Op::kExpand), Role::kH).shape ==
        std::vector<std::int64_t>{2, 8, 4});
}

TEST_CASE("an expert that an adapter has not does nothing, and each adapter lacks as many") {
  Case spec = experts_case(ExpertsPart::kW13);
  spec.experts.count = 10;
  spec.experts.missing = 0.3;
  const std::vector<bool> missing = missing_experts(spec);
  CHECK(std::count(missing.begin(), missing.begin() + 10, true) == 3);
  CHECK(std::count(missing.begin() + 10, missing.end(), true) == 3);
  CHECK(std::vector<bool>(missing.begin(), missing.begin() + 10) !=
        std::vector<bool>(missing.begin() + 10, missing.end()));
  const Problem problem = make_problem(spec, batch_by_hand(), draw_adapters(spec));
  for (std::int64_t slot = 0; slot < problem.slots; ++slot) {
    CHECK((problem.rank[static_cast<std::size_t>(slot)] == 0) ==
          missing[static_cast<std::size_t>(slot)]);
  }
}

TEST_CASE("what a step of experts comes to is counted from its pairs") {
  const std::optional<RouteFacts> facts = facts_of_route(problem_by_hand(ExpertsPart::kW13));
  REQUIRE(facts);
  CHECK(facts->tokens == 4);
  CHECK(facts->pairs == 8);
  CHECK(facts->adapters == 2);
  CHECK(facts->active_adapters == 2);
  CHECK(facts->hits == 4);  // (1, 2) twice, (1, 0), (0, 2), (1, 1)
  CHECK(facts->experts_hit == 3);
  CHECK(facts->most_rows_per_hit == 2);
  CHECK(facts->rows_per_hit == 1.25);
  CHECK(facts->idle_pairs_share == 3.0 / 8);
  Case dense = experts_case(ExpertsPart::kW13);
  dense.experts = {};
  CHECK_FALSE(facts_of_route(make_problem(dense)));
}

TEST_CASE("the oracle reads x through the token of a row and multiplies its delta by its factor") {
  // x of two tokens, (1, 2) and (3, 5); A of two slots of one lane, (1, 1) and (1, -1); B is 2
  // and 4.
  const std::vector<float> x{1, 2, 3, 5}, a{1, 1, 1, -1}, b{2, 4}, y{10, 20, 30}, scale{1, 3};
  const std::vector<float> factor{0.5, 2, 4};
  const std::vector<std::int32_t> ids{0, 1, 0}, tokens{1, 1, 0};
  const std::vector<std::int64_t> rank{1, 1};
  reference::Problem problem;
  problem.numbers = reference::all_of(reference::Number::kFp32);
  problem.tokens = 3;
  problem.slots = problem.in_features = problem.x_stride = 2;
  problem.max_rank = problem.y_stride = 1;
  problem.widths = {1};
  problem.adapter_of_token = ids;
  problem.rank = rank;
  problem.scale = scale;
  problem.x = x.data();
  problem.y = y.data();
  problem.a = {a.data()};
  problem.b = {b.data()};
  problem.row_of_x = tokens;
  const std::vector<std::int64_t> all{0, 1, 2};
  CHECK(reference::evaluate(problem, {}, all).expected ==
        std::vector<double>{10 + 8 * 2, 20 + 3 * -2 * 4, 30 + 3 * 2});
  const double without = reference::evaluate(problem, {}, all).bound[1];
  problem.factor = factor;
  for (const bool at_shrink : {true, false}) {
    problem.scale_at_shrink = at_shrink;
    CHECK(reference::evaluate(problem, {}, all).expected ==
          std::vector<double>{10 + 8, 20 - 48, 30 + 24});
  }
  problem.scale_at_shrink = true;
  CHECK(reference::evaluate(problem, {}, all).bound[1] > 2 * without);
}

TEST_CASE("exact factors are powers of two that the next row has not") {
  const Tensors tensors = draw_tensors(problem_by_hand(ExpertsPart::kW2), Fill::kExact, 3);
  std::vector<float> factors;
  for (std::int64_t row = 0; row < 8; ++row) {
    factors.push_back(load(tensors.factor.dtype, tensors.factor.data.data(), row));
  }
  for (const std::size_t row : {2U, 3U, 4U}) {
    CHECK(std::isnan(factors[row]));  // of no adapter
  }
  for (const std::size_t row : {0U, 1U, 5U, 6U, 7U}) {
    int exponent = 0;
    CHECK(std::frexp(factors[row], &exponent) == 0.5F);
    CHECK(factors[row] != 1);
  }
  CHECK(factors[0] != factors[1]);
  CHECK(factors[6] != factors[7]);
}

TEST_CASE("a row of x that no adapter reads holds nothing") {
  const Problem problem = problem_by_hand(ExpertsPart::kW13);
  const Tensors tensors = draw_tensors(problem, Fill::kBounded, 3);
  for (std::int64_t token = 0; token < 4; ++token) {
    const float first = load(tensors.x.dtype, tensors.x.data.data(), token * problem.x_stride);
    CHECK(std::isnan(first) == (token == 1));
  }
}

TEST_CASE("rows of a step with shared x are taken out with their tokens and factors") {
  const Step step{problem_by_hand(ExpertsPart::kW13, Op::kLinear, WeightAt::kInput),
                  draw_tensors(problem_by_hand(ExpertsPart::kW13, Op::kLinear, WeightAt::kInput),
                               Fill::kBounded, 5)};
  const std::vector<std::int64_t> rows{6, 0, 5};
  const Step taken = select_rows(step, rows);
  CHECK(taken.problem.route.token_of_row == std::vector<std::int32_t>{3, 0, 2});
  CHECK(taken.problem.route.factor_of_row == std::vector<float>{0.6F, 0.75F, 0.7F});
  CHECK(taken.tensors.x.data == step.tensors.x.data);
  CHECK(taken.tensors.factor.elements == 3);
  const Excerpt excerpt = excerpt_of(step.problem, rows);
  const Tensors cut = cut_tensors(excerpt, step.problem, step.tensors, 0, 1, {});
  CHECK(excerpt.problem.x_row(0, 2) == 2);
  CHECK(cut.x.data == step.tensors.x.data);
  CHECK(cut.factor.data == taken.tensors.factor.data);
}

TEST_CASE("cpu is right on both products of experts and on their halves") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend();
  for (const ExpertsPart part : {ExpertsPart::kW13, ExpertsPart::kW2}) {
    for (const Op op : {Op::kLinear, Op::kShrink, Op::kExpand}) {
      for (const WeightAt at : {WeightAt::kInput, WeightAt::kOutput}) {
        const Verdict verdict = verdict_of(*cpu, problem_by_hand(part, op, at));
        CAPTURE(name(part));
        CAPTURE(name(op));
        CAPTURE(verdict.message);
        CHECK(verdict.status == Status::kPassed);
      }
    }
  }
}

TEST_CASE("x of a token counts once, however many of its experts read it") {
  const Work work = count_work(problem_by_hand(ExpertsPart::kW13, Op::kShrink));
  // Five pairs that act, of three tokens; h of 4 + 4 * 3 lanes in two slices; x of 24 in bf16, a
  // token for each pair.
  CHECK(work.rows == 5);
  CHECK(work.bytes - work.weight_bytes - work.written_bytes == 3 * 24 * 2 + 5 * 4);
  CHECK(work.written_bytes == 2 * 16 * 4);
  // A of hits (1, 2), (1, 0), (1, 1) of rank 3 and (0, 2) of rank 4, in two slices.
  CHECK(work.weight_bytes == 2 * (3 * 3 + 4) * 24 * 2);
}

TEST_CASE("who does not follow a route says what it would have to do") {
  const Problem w13 = problem_by_hand(ExpertsPart::kW13);
  const Problem w2 = problem_by_hand(ExpertsPart::kW2);
  CHECK(semantics_refused(w13, Semantics()) ==
        "experts.part: w13: each row has a row of x of its own there");
  CHECK(semantics_refused(w2, Semantics()) ==
        "experts.weight_at: input or output: it multiplies no row by a factor");
  CHECK(semantics_refused(w13, Semantics(Semantic::kSharedX)).empty());
  CHECK(semantics_refused(w2, Semantics(Semantic::kRowFactors)).empty());
}
