#include "verify/groundwork.h"

#include <doctest/doctest.h>

#include "run/case_runner.h"
#include "support/plain_backend.h"
#include "support/problems.h"
#include "support/workload_case.h"
#include "verify/oracle.h"
#include "verify/relations.h"
#include "verify/verify.h"

using namespace lora_bench;

namespace {

constexpr std::int64_t kPlenty = std::int64_t{1} << 30;

Numerics plain_numerics() { return PlainBackend().numerics(linear_problem()); }

Row row_of(const Case& spec, const Selected& selected, KeptGroundwork& kept) {
  static Targets targets;
  return run_case({.spec = spec,
                   .backend = selected,
                   .relations = false,
                   .timing = false,
                   .thresholds = {},
                   .repro = {}},
                  targets, kept);
}

Row row_of(const Case& spec, const std::string& backend, KeptGroundwork& kept) {
  return row_of(spec, select_backend(backend), kept);
}

Row row_alone(const Case& spec, const std::string& backend) {
  KeptGroundwork nothing;
  return row_of(spec, backend, nothing);
}

bool same_proof(const Row& left, const Row& right) {
  return left.status == right.status && left.message == right.message &&
         left.proof.levels == right.proof.levels &&
         left.proof.bound_share == right.proof.bound_share;
}

}  // namespace

TEST_CASE("groundwork: operands are drawn once, the oracle asked once for each declaration") {
  Groundwork groundwork(linear_problem(), 5, kPlenty);
  const std::vector<std::int64_t> rows{0, 4, 5};
  Numerics deeper = plain_numerics();
  deeper.shrink_depth *= 2;
  for (const Fill fill : {Fill::kExact, Fill::kBounded}) {
    const auto tensors = groundwork.tensors(fill);
    CHECK(tensors->fill == fill);
    CHECK(tensors->y.data == draw_tensors(linear_problem(), fill, 5).y.data);
    CHECK(groundwork.tensors(fill) == tensors);
    const auto known = groundwork.rows(*tensors, plain_numerics(), rows);
    CHECK(known->expected ==
          evaluate_rows(linear_problem(), *tensors, plain_numerics(), rows).expected);
    CHECK(known->bound == evaluate_rows(linear_problem(), *tensors, plain_numerics(), rows).bound);
    CHECK(groundwork.rows(*tensors, plain_numerics(), rows) == known);
    CHECK(groundwork.rows(*tensors, plain_numerics(), std::vector<std::int64_t>{0, 4}) != known);
    CHECK(groundwork.rows(*tensors, plain_numerics(), std::vector<std::int64_t>{0, 4, 6}) != known);
    // A depth widens the bound; where sums are exact it changes nothing.
    const auto other = groundwork.rows(*tensors, deeper, rows);
    CHECK((other == known) == (fill == Fill::kExact));
    CHECK(other->bound == evaluate_rows(linear_problem(), *tensors, deeper, rows).bound);
    Numerics rounding = plain_numerics();
    rounding.rounds_delta = true;
    const auto rounded = groundwork.rows(*tensors, rounding, rows);
    CHECK(rounded->expected == evaluate_rows(linear_problem(), *tensors, rounding, rows).expected);
    CHECK(rounded != known);
  }
}

TEST_CASE("groundwork: nothing is kept beyond the bytes that were granted") {
  const std::int64_t one = tensor_bytes(linear_problem());
  Groundwork none(linear_problem(), 1, 0);
  CHECK(none.tensors(Fill::kExact) != none.tensors(Fill::kExact));
  CHECK(none.kept_bytes() == 0);
  Groundwork first(linear_problem(), 1, one + 10);
  const auto exact = first.tensors(Fill::kExact);
  CHECK(first.tensors(Fill::kExact) == exact);
  CHECK(first.tensors(Fill::kBounded) != first.tensors(Fill::kBounded));
  const std::vector<std::int64_t> rows{0};
  CHECK(first.rows(*exact, plain_numerics(), rows) != first.rows(*exact, plain_numerics(), rows));
  CHECK(first.kept_bytes() == one);
}

TEST_CASE("groundwork: a proof on what others used is the proof alone, right or wrong") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Problem problem = random_problem(seed);
    problem.op = Op::kLinear;
    if (problem.tokens == 0) {
      continue;  // there is no x to change
    }
    Groundwork groundwork(problem, 1, kPlenty);
    const auto memory = make_host_memory();
    for (const PlainBackend::Faults& faults :
         {PlainBackend::Faults{}, PlainBackend::Faults{.loses_last_k = true},
          PlainBackend::Faults{.rounds_delta = true}, PlainBackend::Faults{.changes_x = true},
          PlainBackend::Faults{}}) {
      const Verdict shared = verify(groundwork, PlainBackend(faults), *memory, {});
      const Verdict alone = verify(problem, PlainBackend(faults), *memory, {});
      CHECK(shared.status == alone.status);
      CHECK(shared.message == alone.message);
      CHECK(shared.compared == alone.compared);
      CHECK(shared.bound_share == alone.bound_share);
    }
  }
}

TEST_CASE("groundwork: relations on steps that others derived hold or break as they do alone") {
  int failed = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const Problem problem = random_problem(seed);
    Groundwork groundwork(problem, 1, kPlenty);
    const auto memory = make_host_memory();
    for (const PlainBackend::Faults& faults :
         {PlainBackend::Faults{}, PlainBackend::Faults{.loses_last_k = true},
          PlainBackend::Faults{.rounds_delta = true}, PlainBackend::Faults{}}) {
      const PlainBackend backend(faults);
      const auto shared = check_relations(groundwork, backend, *memory, 5);
      Groundwork of_its_own(problem, 1, 0);
      const auto alone = check_relations(of_its_own, backend, *memory, 5);
      REQUIRE(shared.has_value() == alone.has_value());
      if (alone) {
        ++failed;
        CHECK(describe(*shared) == describe(*alone));
      }
    }
  }
  CHECK(failed > 0);
}

TEST_CASE("groundwork: derived steps are made once, within what was granted, for one tuning") {
  Groundwork groundwork(linear_problem(), 1, kPlenty);
  int made = 0;
  const auto make = [&] {
    ++made;
    return Step{groundwork.problem(), *groundwork.tensors(Fill::kBounded)};
  };
  const auto step = groundwork.derived("a copy", make);
  CHECK(groundwork.derived("a copy", make) == step);
  CHECK(made == 1);
  static_cast<void>(step->known.rows(step->step.problem, step->step.tensors, plain_numerics(),
                                     std::vector<std::int64_t>{0}));
  const std::int64_t with_it = groundwork.kept_bytes();
  groundwork.tell(groundwork.problem().tuning);
  CHECK(groundwork.derived("a copy", make) == step);
  Tuning other = groundwork.problem().tuning;
  other.push_back({"warps", "7"});
  groundwork.tell(other);
  CHECK(groundwork.kept_bytes() < with_it);
  const auto told = groundwork.derived("a copy", make);
  CHECK(made == 2);
  CHECK(told->step.problem.tuning == other);
  Groundwork none(linear_problem(), 1, 0);
  CHECK(none.derived("a copy", make) != none.derived("a copy", make));
}

TEST_CASE("kept groundwork: it serves the rows of one case and no row of another") {
  std::vector<Case> cases(5, workload_case(12, 4));
  cases[1].seed = 77;
  cases[2].adapters.rank.list = {5};
  cases[3].batch.decode = 13;
  cases[4].add_inputs = !cases[4].add_inputs;
  KeptGroundwork kept;
  for (const int round : {0, 1}) {
    for (const Case& spec : cases) {
      CAPTURE(round);
      CAPTURE(&spec - cases.data());
      const Groundwork* const before = kept.get();
      const std::weak_ptr<Groundwork> of_case_before = kept;
      CHECK(same_proof(row_of(spec, "cpu", kept), row_alone(spec, "cpu")));
      REQUIRE(kept);
      CHECK((before == nullptr || of_case_before.expired()));
      CHECK(kept->problem() == problem_of(spec));
      CHECK(kept->seed() == spec.seed);
      const Groundwork* const of_case = kept.get();
      CHECK(same_proof(row_of(spec, "mutant:none", kept), row_alone(spec, "mutant:none")));
      CHECK(kept.get() == of_case);
    }
  }
}

TEST_CASE("kept groundwork: it goes after a row that did not pass, which costs the next nothing") {
  const Case spec = workload_case(12, 4);
  KeptGroundwork kept;
  for (const char* backend : {"fake:wrong", "fake:throw", "mutant:lost-k-tail-1"}) {
    CAPTURE(backend);
    CHECK(row_of(spec, "cpu", kept).status == Status::kPassed);
    CHECK(kept);
    const Row row = row_of(spec, backend, kept);
    CAPTURE(row.message);
    CHECK(row.status != Status::kPassed);
    CHECK(same_proof(row, row_alone(spec, backend)));
    CHECK_FALSE(kept);
    CHECK(same_proof(row_of(spec, "cpu", kept), row_alone(spec, "cpu")));
  }
  CHECK(row_of(spec, "fake:unsupported", kept).status == Status::kSkipped);
  CHECK(kept);
}

TEST_CASE("kept groundwork: no row of a plugin is proved on it, nor leaves any") {
  const Case spec = workload_case(12, 4);
  Selected selected = select_backend("cpu");
  const auto spoilt = [&] {
    auto groundwork = std::make_shared<Groundwork>(problem_of(spec), spec.seed, kPlenty);
    const std::vector<std::int64_t> rows = sample_rows(groundwork->problem(), 256, spec.seed);
    const auto known = groundwork->rows(*groundwork->tensors(Fill::kExact),
                                        selected.backend->numerics(groundwork->problem()), rows);
    for (double& expected : const_cast<std::vector<double>&>(known->expected)) {
      expected = -expected;
    }
    return groundwork;
  };
  KeptGroundwork kept = spoilt();
  CHECK(row_of(spec, selected, kept).status == Status::kFailed);  // it is what a proof reads
  selected.plugin = "mine.so sha256:0";
  kept = spoilt();
  CHECK(row_of(spec, selected, kept).status == Status::kPassed);
  CHECK_FALSE(kept);
}

TEST_CASE("kept groundwork: two seeds of one problem have each their own") {
  Case spec = workload_case(12, 4);
  spec.skew.kind = Skew::kIdentical;
  Case other = spec;
  other.seed = spec.seed + 1;
  REQUIRE(problem_of(spec) == problem_of(other));
  KeptGroundwork kept;
  CHECK(row_of(spec, "cpu", kept).status == Status::kPassed);
  REQUIRE(kept);
  const std::weak_ptr<Groundwork> of_first = kept;
  CHECK(same_proof(row_of(other, "cpu", kept), row_alone(other, "cpu")));
  CHECK(of_first.expired());
  REQUIRE(kept);
  CHECK(kept->seed() == other.seed);
}
