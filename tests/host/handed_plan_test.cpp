#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "device/memory.h"
#include "ops/backends.h"
#include "ops/kernel_params.h"
#include "ops/operands.h"
#include "plan/forms.h"
#include "scenario/scenario.h"
#include "verify/mutant_hunt.h"
#include "verify/random_case.h"
#include "verify/verify.h"
#include "workload/problem.h"

using namespace lora_bench;

namespace {

using Ids = std::vector<std::int32_t>;

Case handed(const std::string& plan) {
  return parse_scenario(
             "name: handed\nlayer: {in: 40, out: [24, 16]}\nbatch: {decode: 8}\n"
             "adapters: {slots: 3, rank: [4, 8, 8]}\n" +
                 plan,
             "handed.yaml", {})
      .cases.front();
}

// The batch that docs/plan.md works out by hand.
Problem example(const std::string& plan) {
  Problem problem = make_problem(handed(plan));
  problem.plan = make_plan(Ids{2, 2, -1, 0, 2, 0, -1, -1}, 3);
  return problem;
}

Ids array_named(const Problem& problem, const std::string& name) {
  for (const IndexArray& array : index_arrays_of(problem)) {
    if (array.name == name) {
      return array.values;
    }
  }
  return {};
}

std::string refusal(const std::string& plan) {
  try {
    (void)handed(plan);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a plan in the kernel form: a group for every slot and one for rows without an adapter") {
  const Problem problem = example("plan.form: kernel\n");
  CHECK(array_named(problem, "token_order") == Ids{2, 6, 7, 3, 5, 0, 1, 4});
  CHECK(array_named(problem, "active_ids") == Ids{-1, 0, 2, -1});
  CHECK(array_named(problem, "group_starts") == Ids{0, 3, 5, 8, 0});
  CHECK(array_named(problem, "rank") == Ids{4, 8, 8});
  CHECK(problem.groups() == 4);
}

TEST_CASE("a plan in the kernel form, grid active: the groups of the batch") {
  Problem problem = example("plan: {form: kernel, grid: active}\n");
  CHECK(problem.groups() == 3);
  CHECK(array_named(problem, "active_ids") == Ids{-1, 0, 2, -1});
  problem.plan = make_plan(Ids{2, 2, 2, 0, 2, 0, 1, 1}, 3);
  CHECK(problem.groups() == 3);  // no row is without an adapter
  problem.plan = make_plan(Ids(8, kNoAdapter), 3);
  CHECK(problem.groups() == 0);  // nothing is launched
}

TEST_CASE("a plan in the chunked form: segments, empty ones behind them") {
  const Problem problem = example("plan.form: chunked\n");
  CHECK(problem.chunk == 16);
  CHECK(problem.groups() == 3);
  CHECK(array_named(problem, "token_order") == Ids{3, 5, 0, 1, 4, 2, 6, 7});
  CHECK(array_named(problem, "active_ids") == Ids{0, 2, -1});
  CHECK(array_named(problem, "group_starts") == Ids{0, 2, 5, 5});
}

TEST_CASE("a plan in the chunked form: rows without an adapter have segments of a slot of rank 0") {
  const Problem problem = example("plan: {form: chunked, idle_segments: true}\n");
  CHECK(problem.groups() == 4);
  CHECK(array_named(problem, "active_ids") == Ids{0, 2, 3, -1});
  CHECK(array_named(problem, "group_starts") == Ids{0, 2, 5, 8, 8});
  CHECK(array_named(problem, "rank") == Ids{4, 8, 8, 0});
  CHECK(example("plan: {form: chunked, grid: active}\n").groups() == 2);
  CHECK(example("plan: {form: chunked, grid: active, idle_segments: true}\n").groups() == 3);
}

TEST_CASE("segments of a handed plan have as many rows as the batch and the largest chunk allow") {
  const auto chunk_of = [](std::int64_t tokens, std::int64_t largest) {
    Case spec = handed("plan.form: chunked\n");
    spec.batch.decode = tokens;
    spec.plan.largest_chunk = largest;
    return make_problem(spec).chunk;
  };
  CHECK(chunk_of(63, 128) == 16);
  CHECK(chunk_of(64, 128) == 32);
  CHECK(chunk_of(255, 128) == 32);
  CHECK(chunk_of(256, 128) == 128);
  CHECK(chunk_of(256, 64) == 64);
  CHECK(chunk_of(256, 16) == 16);
  CHECK(make_problem(handed("")).chunk == 0);
}

TEST_CASE("a plan's form is refused where its fields have no meaning") {
  CHECK(refusal("plan: {form: kernel, grid: slots}\n") == "accepted");
  CHECK(refusal("plan.form: prefill\n").find("allowed: sorted, kernel, chunked") !=
        std::string::npos);
  CHECK(refusal("plan.grid: active\n").find("'plan.grid' of a plan in form sorted") !=
        std::string::npos);
  CHECK(refusal("plan: {form: kernel, max_slots: 3}\n").find("plan.grid: slots serves all") !=
        std::string::npos);
  CHECK(refusal("plan: {form: kernel, largest_chunk: 32}\n").find("plan.form: chunked") !=
        std::string::npos);
  CHECK(refusal("plan: {form: kernel, idle_segments: true}\n").find("plan.form: chunked") !=
        std::string::npos);
}

TEST_CASE("the form of a plan stands in the text of a case, and is read from it") {
  const Case spec =
      handed("plan: {form: chunked, grid: active, largest_chunk: 64, idle_segments: true}\n");
  CHECK(plan_text(spec.plan) ==
        "form: chunked, grid: active, largest_chunk: 64, idle_segments: true");
  CHECK(parse_scenario(scenario_text(spec), "again.yaml", {}).cases.front().plan == spec.plan);
}

TEST_CASE("who takes form sorted alone says so of the others") {
  const Problem kernel = example("plan.form: kernel\n");
  CHECK(fast_kernels_take(kernel).why_not == "plan.form: kernel: it reads other arrays of a plan");
  CHECK_FALSE(fast_kernels_take(kernel, Semantics(Semantic::kChunkedForm)).yes);
  CHECK(fast_kernels_take(kernel, Semantics(Semantic::kKernelForm)).yes);
  CHECK(fast_kernels_take(example("")).yes);
  CHECK(kernels_take(kernel).yes);
}

TEST_CASE("backend cpu is right on a plan in every form, and what the grid leaves out is seen") {
  const auto memory = make_host_memory();
  const auto cpu = make_cpu_backend();
  const auto one_group = make_mutant("segments-beyond-captured");
  int proved = 0;
  for (const char* form : {"kernel", "chunked"}) {
    for (const char* grid : {"slots", "active"}) {
      for (const std::int64_t tokens : {0, 9, 70, 300}) {
        Case spec = handed(std::string("plan: {form: ") + form + ", grid: " + grid + "}\n");
        spec.batch.decode = tokens;
        spec.plan.max_tokens = tokens + 3;
        spec.no_adapter = 0.3;
        spec.plan.largest_chunk = 128;
        const Problem problem = make_problem(spec);
        CAPTURE(form);
        CAPTURE(grid);
        CAPTURE(tokens);
        const Verdict right = verify(problem, *cpu, *memory, {});
        CAPTURE(right.message);
        CHECK_FALSE(right.failure);
        proved += right.status == Status::kPassed && right.compared > 0 ? 1 : 0;
        if (problem.plan.active() > 1) {
          CHECK(verify(problem, *one_group, *memory, {}).failure);
        }
      }
    }
  }
  CHECK(proved == 16);
}

TEST_CASE("every fault in who computes which row is caught on a plan in a published form") {
  const std::vector<std::string> faults{"no-op",
                                        "segments-beyond-captured",
                                        "skips-first-group-after-none",
                                        "first-row-lost",
                                        "last-row-lost",
                                        "partial-tile-lost",
                                        "frozen-plan",
                                        "one-row-wrong-adapter",
                                        "none-is-first-adapter",
                                        "group-index-as-adapter"};
  std::vector<Case> kernel, chunked;
  for (const Case& spec : telling_cases()) {
    if (spec.plan.form == PlanForm::kKernel) {
      kernel.push_back(spec);
    } else if (spec.plan.form == PlanForm::kChunked) {
      chunked.push_back(spec);
    }
  }
  REQUIRE_FALSE(kernel.empty());
  REQUIRE_FALSE(chunked.empty());
  const HuntingGround in_kernel(kernel), in_chunked(chunked);
  for (const std::string& fault : faults) {
    CAPTURE(fault);
    CHECK(hunt(fault, in_kernel).caught);
    CHECK(hunt(fault, in_chunked).caught);
  }
  for (const char* fault : {"rows-beyond-one-tile-lost", "idle-segment-is-last-slot"}) {
    CAPTURE(fault);
    CHECK(hunt(fault, in_chunked).caught);
  }
  CHECK_FALSE(hunt("none", in_kernel).caught);
  CHECK_FALSE(hunt("none", in_chunked).caught);
}
