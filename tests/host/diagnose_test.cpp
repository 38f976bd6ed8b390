#include "verify/diagnose.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/dtype.h"
#include "support/plain_backend.h"
#include "support/problems.h"
#include "verify/verify.h"

using namespace lora_bench;

namespace {

Failure failure_of(const Problem& problem, const Backend& backend) {
  const auto memory = make_host_memory();
  const Verdict verdict = verify(problem, backend, *memory, {});
  REQUIRE(verdict.failure);
  return *verdict.failure;
}

// Slices own every column, so that what a row owns is a matter of its adapter.
Problem without_gaps() {
  Problem problem = linear_problem();
  problem.offset_start = 0;
  problem.y_stride = 32;
  return problem;
}

class Declaring final : public PlainBackend {
 public:
  using PlainBackend::PlainBackend;
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics = PlainBackend::numerics(problem);
    numerics.rounds_delta = true;
    return numerics;
  }
};

// Clears y before it adds to it.
class Clearing final : public PlainBackend {
 public:
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    for (std::int64_t i = 0; i < problem.tokens * problem.y_stride; ++i) {
      store(problem.dtype[Role::kY], operands.y, i, 0);
    }
    PlainBackend::launch(problem, operands, stream);
  }
};

}  // namespace

TEST_CASE("diagnosis: a rounding that is declared and not done is not told as one that is done") {
  const Failure undone = failure_of(linear_problem(), Declaring());
  CHECK(undone.hypothesis == "rounding-not-done");
  CHECK(undone.explanation ==
        "rounds_delta is declared, but delta was not rounded before it was added to y");
  const Failure done = failure_of(linear_problem(), PlainBackend({.rounds_delta = true}));
  CHECK(done.hypothesis == "rounded-delta");
  CHECK(done.explanation == "delta was rounded to the output type before it was added to y");
}

TEST_CASE("diagnosis: rows without an adapter are named, not columns that slices own") {
  const Failure cleared = failure_of(without_gaps(), Clearing());
  CHECK(cleared.hypothesis == "base-rows-written");
  CHECK(cleared.explanation.starts_with("row 3 has no adapter (or one of rank 0)"));
  PlainBackend::Faults past_the_last_slice;
  past_the_last_slice.then = [](const Problem& problem, const Operands& operands) {
    for (std::int64_t token = 0; token + 1 < problem.tokens; ++token) {
      store(problem.dtype[Role::kY], operands.y, (token + 1) * problem.y_stride, 3);
    }
  };
  const Failure past = failure_of(without_gaps(), PlainBackend(past_the_last_slice));
  CHECK(past.hypothesis == "base-rows-written");
  // Where there are columns of nobody, those are told.
  const Failure beside = failure_of(linear_problem(), Clearing());
  CHECK(beside.hypothesis == "written-outside");
  CHECK(beside.explanation == "written in columns of y that no slice owns: 0, 1, 34, 35");
}

TEST_CASE("diagnosis: no scale is named that is 1 as far as roundings tell") {
  Problem problem = linear_problem();
  problem.dtype = OperandDtypes(Dtype::kFp32);
  PlainBackend::Faults last_bit;
  last_bit.then = [](const Problem& of, const Operands& operands) {
    auto* y = static_cast<float*>(operands.y) + of.offset_start;
    *y = std::nextafter(*y, 2 * *y);
  };
  CHECK(failure_of(problem, PlainBackend(last_bit)).hypothesis != "wrong-scale");
}

TEST_CASE("diagnosis: one row holds, several hold") {
  PlainBackend::Faults one;
  one.token_without_delta = 1;
  CHECK(failure_of(linear_problem(), PlainBackend(one)).explanation ==
        "row 1 holds what was there before: nothing was added");
  PlainBackend::Faults base;
  base.writes_rows_without_adapter = true;
  CHECK(failure_of(linear_problem(), PlainBackend(base)).explanation ==
        "rows 3, 7, 11 have no adapter (or one of rank 0) and must stay as before");
}
