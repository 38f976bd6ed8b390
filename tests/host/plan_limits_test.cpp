#include <doctest/doctest.h>

#include <algorithm>

#include "kernels/clustered/clustered_tuning.h"
#include "measure/operand_sets.h"
#include "ops/auto_choice.h"
#include "ops/auto_tuning.h"
#include "ops/backends.h"
#include "ops/kernel_params.h"
#include "scenario/scenario.h"
#include "support/cluster_shapes.h"
#include "workload/problem.h"

using namespace lora_bench;

namespace {

Case case_with(const std::string& plan) {
  return parse_scenario(
             "name: limits\nmodel: llama-3.1-8b\nlayers: qkv\nbatch: {decode: 8}\n"
             "adapters: {slots: 512, active: 3}\n" +
                 plan,
             "limits.yaml", {})
      .cases.front();
}

Problem problem_of(const Case& spec) { return make_problem(spec); }

}  // namespace

TEST_CASE("a launch for more tokens has rows without an adapter after those of the batch") {
  const Problem own = problem_of(case_with(""));
  const Problem captured = problem_of(case_with("plan.max_tokens: 12\n"));
  CHECK(captured.tokens == 12);
  CHECK(captured.plan.active_ids == own.plan.active_ids);
  CHECK(captured.plan.group_starts == own.plan.group_starts);
  const auto& ids = captured.plan.adapter_of_token;
  CHECK(
      std::equal(own.plan.adapter_of_token.begin(), own.plan.adapter_of_token.end(), ids.begin()));
  CHECK(std::vector<std::int32_t>(ids.begin() + 8, ids.end()) ==
        std::vector<std::int32_t>(4, kNoAdapter));
}

namespace {

std::vector<std::int32_t> array_of(const Problem& problem, const std::string& name) {
  for (const IndexArray& array : index_arrays_of(problem)) {
    if (array.name == name) {
      return array.values;
    }
  }
  return {};
}

}  // namespace

TEST_CASE("a launch for more adapters has as many groups, the plan's and empty ones") {
  const Problem own = problem_of(case_with(""));
  CHECK(own.groups() == 3);
  CHECK(array_of(own, "active_ids") == own.plan.active_ids);
  CHECK(array_of(own, "group_starts") == own.plan.group_starts);
  const Problem some = problem_of(case_with("plan.max_slots: 5\n"));
  CHECK(some.plan == own.plan);
  std::vector<std::int32_t> ids = own.plan.active_ids;
  ids.insert(ids.end(), 2, kNoAdapter);
  CHECK(array_of(some, "active_ids") == ids);
  std::vector<std::int32_t> starts = own.plan.group_starts;
  starts.insert(starts.end(), 2, 8);
  CHECK(array_of(some, "group_starts") == starts);
  // Never more than there are tokens, nor fewer than are in use.
  CHECK(problem_of(case_with("plan.max_slots: 512\n")).groups() == 8);
  CHECK(problem_of(case_with("plan.max_slots: 2\n")).groups() == 3);
}

TEST_CASE("limits stand in the text of a case, and are read from it") {
  const Case spec = case_with("plan: {max_tokens: 16, max_slots: 512}\n");
  CHECK(plan_text(spec.plan) == "max_tokens: 16, max_slots: 512");
  const Case again = parse_scenario(scenario_text(spec), "again.yaml", {}).cases.front();
  CHECK(again.plan == spec.plan);
  CHECK(plan_text({}) == "");
}

TEST_CASE("who is captured for all slots replays every batch, and launches where none has rows") {
  CHECK_FALSE(panel_numerics(problem_of(case_with(""))).replays_other_batches);
  CHECK_FALSE(panel_numerics(problem_of(case_with("plan.max_slots: 5\n"))).replays_other_batches);
  Problem all = problem_of(case_with("plan.max_slots: 512\n"));
  CHECK(panel_numerics(all).replays_other_batches);
  all.plan = make_plan(std::vector<std::int32_t>(8, kNoAdapter), all.slots);
  CHECK(all.groups() == 8);
}

TEST_CASE("what is launched for limits follows from them, not from the batch") {
  const AutoDevice device;
  for (const std::int64_t tokens : {1, 8, 64, 256, 4096}) {
    Problem problem = problem_of(case_with("plan.max_slots: 512\n"));
    problem.tokens = tokens;
    const auto of_ids = [&](auto id) {
      std::vector<std::int32_t> ids;
      for (std::int64_t row = 0; row < tokens; ++row) {
        ids.push_back(static_cast<std::int32_t>(id(row)));
      }
      Problem of = problem;
      of.plan = make_plan(ids, problem.slots);
      return of;
    };
    CAPTURE(tokens);
    const Problem distinct = of_ids([](std::int64_t row) { return row % 512; });
    for (const Problem& other : {of_ids([](std::int64_t) { return 7; }),
                                 of_ids([](std::int64_t) { return kNoAdapter; })}) {
      CHECK(auto_family(device, other) == auto_family(device, distinct));
      CHECK(auto_clustered_tuning(device, other) == auto_clustered_tuning(device, distinct));
      CHECK(auto_resident_tuning(device, other) == auto_resident_tuning(device, distinct));
      CHECK(auto_shrink_tuning(device, other, {}, true) ==
            auto_shrink_tuning(device, distinct, {}, true));
      CHECK(auto_workspace_bytes(device, other, {}) == auto_workspace_bytes(device, distinct, {}));
    }
  }
}

TEST_CASE("clusters for any batch have a block for every tile that there may be") {
  using namespace kernels;
  int any = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    ClusteredShape shape = drawn_cluster_shape(47, i, 600);
    if (!clustered_takes(shape)) {
      continue;
    }
    shape.any_batch = true;
    const ClusteredTuning tuning = clustered_tuning(shape);
    CAPTURE(i);
    CHECK(tuning.fits);
    CHECK(tuning.shared_bytes <= shape.shared_bytes);
    if (!tuning.any_batch) {
      continue;
    }
    ++any;
    CHECK(tuning.owned == 0);
    const std::int64_t most = std::min(shape.tokens, shape.tokens / kClusteredRows + shape.active);
    CHECK(tuning.tiles * tuning.cluster >= most);
    CHECK(tuning.cluster <= 8);
  }
  CHECK(any > 500);
}
