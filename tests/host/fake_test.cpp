#include <doctest/doctest.h>

#include <atomic>
#include <set>
#include <thread>

#include "core/error.h"
#include "ops/backends.h"
#include "ops/operands.h"
#include "support/host_run.h"
#include "support/workload_case.h"
#include "verify/verify.h"

using lora_bench::Backend;
using lora_bench::Case;
using lora_bench::CaseError;
using lora_bench::make_fake;
using lora_bench::Problem;
using lora_bench::Status;

namespace {

// Three rows: adapter 1, none, adapter 0; K = 2, rank 2 of 2, slices of 1 and 0 and 1 columns.
struct SmallRun {
  lora_bench::Problem problem;
  std::vector<float> x{1, 2, 100, 100, 3, 4};
  std::vector<float> a0{1, 0, 0, 1, 2, 1, -1, 1}, a1{1, 1, 1, 1, 5, 0, 0, 5},
      a2{0, 0, 0, 0, 1, 2, 3, 4};
  std::vector<float> b0{1, 1, 1, 10}, b2{1, 1, 2, 3};
  std::vector<float> bias0{0.5F, 0.25F}, bias2{0, 1000};
  std::vector<float> h = std::vector<float>(18, -7);
  std::vector<float> y{1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<std::int32_t> ids{1, -1, 0}, rank{2, 2};
  std::vector<float> scale{2, 4};
  lora_bench::Operands operands;

  explicit SmallRun(lora_bench::ScaleAt scale_at, bool add_inputs) {
    problem.op = lora_bench::Op::kLinear;
    problem.dtype =
        lora_bench::OperandDtypes(lora_bench::Dtype::kFp32, problem.dtype[lora_bench::Role::kH]);
    problem.scale_at = scale_at;
    problem.add_inputs = add_inputs;
    problem.bias = true;
    problem.tokens = 3;
    problem.in_features = 2;
    problem.widths = {1, 0, 1};
    problem.offset_start = 1;
    problem.x_stride = 2;
    problem.y_stride = 3;
    problem.slots = 2;
    problem.max_rank = 2;
    problem.rank = {2, 2};
    problem.scale = scale;
    operands.x = x.data();
    operands.a = {a0.data(), a1.data(), a2.data()};
    operands.b = {b0.data(), nullptr, b2.data()};
    operands.bias = {bias0.data(), nullptr, bias2.data()};
    operands.h = h.data();
    operands.y = y.data();
    operands.adapter_of_token = ids.data();
    operands.rank = rank.data();
    operands.scale = scale.data();
  }
};

Problem random_problem(std::uint64_t seed) { return problem_of(random_case(seed)); }

lora_bench::Verdict verdict_of(const std::string& behaviour, std::uint64_t seed) {
  const auto memory = lora_bench::make_host_memory();
  return verify(random_problem(seed), *make_fake(behaviour), *memory, {});
}

}  // namespace

TEST_CASE("the plain formula gives what was worked out by hand") {
  SmallRun run(lora_bench::ScaleAt::kShrink, true);
  apply_plain_formula(run.problem, run.operands);
  // Row 0, adapter 1, scale 4: x A0^T = (4, 1) -> h = (16, 4); row 2, adapter 0, scale 2: (3, 4).
  CHECK(run.h[0] == 16);
  CHECK(run.h[1] == 4);
  CHECK(run.h[2] == -7);
  CHECK(run.h[3] == -7);
  CHECK(run.h[4] == 6);
  CHECK(run.h[5] == 8);
  // Slice 2: row 0 h = 4 (5, 11) = (20, 44); B = (2, 3), bias 1000.
  CHECK(run.y == std::vector<float>{1, 2 + 16 + 40 + 0.25F, 3 + 40 + 132 + 1000, 4, 5, 6, 7,
                                    8 + 6 + 8 + 0.5F, 9});
}

TEST_CASE("the plain formula can replace y, and scale at expand, without the bias") {
  SmallRun run(lora_bench::ScaleAt::kExpand, false);
  apply_plain_formula(run.problem, run.operands);
  CHECK(run.h[0] == 4);
  CHECK(run.y ==
        std::vector<float>{1, 16 + 40 + 0.25F, 40 + 132 + 1000, 4, 5, 6, 7, 6 + 8 + 0.5F, 0});
}

TEST_CASE("the fake without a behaviour is proved right, whatever the case") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const lora_bench::Verdict verdict = verdict_of("", seed);
    CAPTURE(seed);
    CAPTURE(verdict.message);
    CHECK((verdict.status == Status::kPassed || verdict.status == Status::kMistrusted));
  }
}

TEST_CASE("fakes with a wrong result are found out") {
  for (const std::string behaviour : {"wrong", "late", "outside"}) {
    CAPTURE(behaviour);
    CHECK(verdict_of(behaviour, 1).status == Status::kFailed);
  }
}

TEST_CASE("a late fake does its work when the same buffers come again") {
  SmallRun run(lora_bench::ScaleAt::kShrink, true);
  const auto fake = make_fake("late");
  const std::vector<float> before = run.y;
  fake->launch(run.problem, run.operands, {});
  CHECK(run.y == before);
  fake->launch(run.problem, run.operands, {});
  CHECK(run.y != before);
}

TEST_CASE("a slow fake is right and knows its factor") {
  CHECK(verdict_of("slow=1.5", 1).status == Status::kPassed);
  CHECK(make_fake("slow=1.5")->name() == "fake:slow=1.5");
  for (const std::string bad : {"slow=0.5", "slow=", "slow=x", "slow=2x", "slow=nan", "slow"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS((void)make_fake(bad), lora_bench::UsageError);
  }
}

TEST_CASE("fakes fail in the way that their name says") {
  const Problem problem = random_problem(1);
  CHECK_THROWS_AS(make_fake("throw")->launch(problem, {}, {}), CaseError);
  CHECK_THROWS_AS(make_fake("lost")->launch(problem, {}, {}), lora_bench::EnvironmentError);
  CHECK_FALSE(make_fake("unsupported")->supports(problem, {}).yes);
  CHECK_FALSE(make_fake("unsupported")->supports(problem, {}).why_not.empty());
  CHECK(make_fake("")->supports(problem, {}).yes);
  const auto memory = lora_bench::make_host_memory();
  CHECK_THROWS_AS((void)memory->allocate(make_fake("oom")->workspace_bytes(problem)), CaseError);
}

TEST_CASE("a hanging fake hangs until it is released") {
  const Problem problem = random_problem(1);
  std::atomic<bool> threw = false;
  std::atomic<bool> ended = false;
  std::thread thread([&] {
    try {
      make_fake("hang")->launch(problem, {}, {});
    } catch (const CaseError&) {
      threw = true;
    }
    ended = true;
  });
  // It may not have begun to wait at the first release.
  while (!ended) {
    lora_bench::release_hung_fakes();
    std::this_thread::yield();
  }
  thread.join();
  CHECK(threw);
}

TEST_CASE("every fake that is listed can be made, under its own name") {
  std::set<std::string> names;
  for (const lora_bench::FakeDoc& doc : lora_bench::fake_behaviours()) {
    const std::string behaviour = doc.behaviour == "slow=FACTOR" ? "slow=2" : doc.behaviour;
    names.insert(std::string(make_fake(behaviour)->name()));
    CHECK_FALSE(doc.meaning.empty());
  }
  CHECK(names.size() == lora_bench::fake_behaviours().size());
}

TEST_CASE("an unknown fake is refused with the nearest one") {
  CHECK_THROWS_WITH_AS((void)make_fake("thorw"), doctest::Contains("did you mean 'throw'?"),
                       lora_bench::UsageError);
}
