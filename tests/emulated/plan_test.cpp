#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "device/facts.h"
#include "ops/backends.h"
#include "support/device_plans.h"
#include "verify/random_case.h"
#include "verify/staging.h"
#include "verify/verify.h"
#include "workload/tensors.h"

using namespace lora_bench;

TEST_CASE("a plan built by a kernel is the host's, of one block and of clusters") {
  const auto memory = make_device_memory();
  PlanBed bed(*memory);
  const auto check = [&](std::uint64_t seed, std::int64_t tokens, std::int64_t most,
                         std::int64_t slots, int capability) {
    CAPTURE(seed);
    CAPTURE(tokens);
    CAPTURE(most);
    CAPTURE(slots);
    CAPTURE(capability);
    const Ids ids = drawn_ids(seed, tokens, slots);
    bed.set(ids);
    launch_device_plan(bed.plan(tokens, slots), tokens, {most, slots, capability}, {});
    CHECK(bed.agrees(ids, slots));
  };
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const std::int64_t tokens = drawn_size(seed, 1, 0, 2500);
    const std::int64_t slots = drawn_size(seed, 2, 1, kMostSlots);
    check(seed, tokens, seed % 2 == 0 ? tokens : 2500, slots, seed % 3 == 0 ? 80 : 90);
  }
  // Ids that name no slot count as none.
  bed.set(Ids{1, 5, -7, 0, 2147483647, 1});
  launch_device_plan(bed.plan(6, 2), 6, {6, 2, 90}, {});
  CHECK(bed.agrees(Ids{1, -1, -1, 0, -1, 1}, 2));
  check(1, 4200, 16384, 40, 90);  // eight blocks
  check(3, 4200, 4200, 40, 80);   // one, which reads its tokens again
}

TEST_CASE("a plan that each launch makes serves the op behind it, and no other is read") {
  const auto memory = make_device_memory();
  const std::shared_ptr<const Backend> backend = with_device_plan(make_naive_backend());
  for (const Case& spec : telling_cases()) {
    const Problem problem = make_problem(spec);
    if (problem.tokens > 200 || !backend->supports(problem, facts_of(Space::kDevice)).yes) {
      continue;
    }
    CAPTURE(spec.id);
    CHECK(verify(problem, *backend, *memory, {}).message == "");
  }
  // The plan that is uploaded may be anything: the op sees the one of its launch.
  Problem problem = make_problem(telling_cases().front());
  const Tensors tensors = draw_tensors(problem, Fill::kExact, 1);
  Problem stale = problem;
  std::reverse(stale.plan.token_order.begin(), stale.plan.token_order.end());
  const auto output = [&](const Backend& by, const Problem& uploaded) {
    Stage stage(*memory, uploaded, tensors, {by.workspace_bytes(problem)});
    stage.launch(by);
    return stage.output();
  };
  CHECK(output(*backend, stale) == output(*make_naive_backend(), problem));
}

namespace {

// Small batches of every kind that a published form tells apart.
std::vector<Case> batches_in(PlanForm form, PlanGrid grid) {
  std::vector<Case> specs;
  const std::int64_t many = form == PlanForm::kChunked ? 260 : 70;  // segments of 128 rows
  for (const std::int64_t tokens : {std::int64_t{5}, many}) {
    for (const bool wide : {false, true}) {
      Case spec = telling_cases().front();
      spec.id = std::to_string(tokens);
      spec.dtype = wide ? Dtype::kFp16 : Dtype::kBf16;
      spec.layer.in_features = wide ? 136 : 72;
      spec.layer.x_stride = 0;
      spec.batch.decode = tokens;
      spec.batch.prefill.clear();
      spec.adapters.active = 0;
      spec.no_adapter = wide ? 0.3 : 0.0;
      spec.skew.kind = Skew::kUniform;
      spec.plan.form = form;
      spec.plan.grid = grid;
      if (form == PlanForm::kChunked) {
        spec.plan.largest_chunk = wide ? 128 : 64;
        spec.plan.idle_segments = wide;
      }
      specs.push_back(spec);
    }
  }
  return specs;
}

}  // namespace

TEST_CASE("kernels are right on the published form of the plan that they take") {
  const auto memory = make_device_memory();
  int proved = 0;
  const auto prove = [&](const Backend& backend, const Case& spec) {
    const Problem problem = make_problem(spec);
    CAPTURE(backend.name());
    CAPTURE(spec.id);
    CAPTURE(spec.plan.grid);
    REQUIRE(backend.supports(problem, facts_of(Space::kDevice)).yes);
    const bool replays = problem.tokens < 9 && spec.plan.grid == PlanGrid::kSlots &&
                         problem.plan.rows_with_adapter() < problem.tokens;
    const Verdict verdict = verify(problem, backend, *memory, {.relations = replays});
    CHECK(verdict.message == "");
    proved += verdict.status == Status::kPassed && verdict.compared > 0 ? 1 : 0;
  };
  for (const PlanGrid grid : {PlanGrid::kSlots, PlanGrid::kActive}) {
    for (const Case& spec : batches_in(PlanForm::kKernel, grid)) {
      for (const bool ordered : {false, true}) {
        prove(*(ordered ? make_grouped_ordered_backend() : make_grouped_backend()), spec);
      }
      prove(*with_device_plan(make_grouped_backend()), spec);
    }
    for (const Case& spec : batches_in(PlanForm::kChunked, grid)) {
      prove(*make_chunked_backend(), spec);
      prove(*with_device_plan(make_chunked_backend()), spec);
    }
  }
  CHECK(proved == 40);
}

TEST_CASE("kernels are right where the plan has room for more adapters than the batch") {
  const auto memory = make_device_memory();
  Case spec = batches_in(PlanForm::kSorted, PlanGrid::kSlots).back();
  spec.adapters.slots = 300;
  spec.plan.max_slots = 264;
  const Problem problem = make_problem(spec);
  REQUIRE(problem.groups() > problem.plan.active());
  int proved = 0;
  for (const auto& make : {make_grouped_backend, make_grouped_ordered_backend, make_chunked_backend,
                           make_bgmv_backend, make_panel_backend}) {
    const std::unique_ptr<Backend> backend = make();
    CAPTURE(backend->name());
    const Verdict verdict = verify(problem, *backend, *memory, {.relations = false});
    CHECK(verdict.message == "");
    proved += verdict.status == Status::kPassed && verdict.compared > 0 ? 1 : 0;
  }
  CHECK(proved == 5);
}

TEST_CASE("grouped refuses a grid for any batch that idle blocks alone would keep busy") {
  Case spec = batches_in(PlanForm::kKernel, PlanGrid::kSlots).front();
  spec.adapters.slots = 4096;
  spec.plan.max_tokens = 65536;
  const auto grouped = make_grouped_backend();
  const DeviceFacts facts = facts_of(Space::kDevice);
  const Support any = grouped->supports(make_problem(spec), facts);
  CHECK_FALSE(any.yes);
  CHECK(any.why_not.find("plan.grid: active has those of this batch") != std::string::npos);
  spec.plan.grid = PlanGrid::kActive;
  CHECK(grouped->supports(make_problem(spec), facts).yes);
}
