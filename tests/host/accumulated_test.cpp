#include <doctest/doctest.h>

#include "core/dtype.h"
#include "support/draws.h"
#include "support/host_run.h"
#include "support/plain_backend.h"
#include "verify/random_case.h"
#include "verify/verify.h"
#include "workload/semantics.h"

using namespace lora_bench;

namespace {

struct Repeated {
  Problem problem;
  Tensors tensors;

  explicit Repeated(const Case& spec)
      : problem(make_problem(spec)), tensors(draw_tensors(problem, Fill::kTiming, spec.seed)) {}

  // What is found in y after `done` launches where `told` are told.
  Comparison check(std::int64_t done, std::int64_t told, const PlainBackend& backend = {},
                   std::uint64_t seed = 1) const {
    const std::unique_ptr<Memory> memory = make_host_memory();
    const LoadedProblem loaded(problem, tensors, *memory);
    for (std::int64_t launch = 0; launch < done; ++launch) {
      backend.launch(problem, loaded.operands, {});
    }
    const std::vector<std::byte> y = loaded.download_y();
    return compare_accumulated(problem, {&tensors}, backend.numerics(problem), y.data(), told,
                               sample_rows(problem, 16, 1), seed);
  }
};

Case case_of(Dtype dtype) {
  Case spec = telling_cases().front();
  spec.dtype = dtype;
  return spec;
}

}  // namespace

TEST_CASE("so many right launches lie where so many roundings can have taken them") {
  std::int64_t seen = 0;
  for (std::int64_t index = 0; index < test::draws(200); ++index) {
    const Case spec = random_case(5, static_cast<std::uint64_t>(index));
    const Repeated repeated(spec);
    if (!semantics_text(repeated.problem).empty()) {
      continue;  // the plain backend does the plain op
    }
    if (!has_expand(spec.op) || !spec.add_inputs || owned_elements(repeated.problem) == 0) {
      continue;
    }
    CAPTURE(spec.id);
    const Comparison found = repeated.check(30, 30);
    CHECK(found.wrong == 0);
    CHECK(found.compared > 0);
    ++seen;
  }
  CHECK(seen > test::draws(30));
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    CHECK(Repeated(case_of(dtype)).check(test::draws(1024), test::draws(1024)).wrong == 0);
  }
}

TEST_CASE("launches that left their work out are missed") {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16}) {
    CAPTURE(name(dtype));
    const Repeated repeated(case_of(dtype));
    CHECK(repeated.check(0, 1024).wrong > 0);
    CHECK(repeated.check(1, 1024).wrong > 0);
    CHECK(repeated.check(15, 16).wrong > 0);
    CHECK(repeated.check(17, 16).wrong > 0);
  }
  const std::int64_t many = test::draws(1024);
  CHECK(Repeated(case_of(Dtype::kFp32)).check(many - 1, many).wrong > 0);
}

TEST_CASE("rows that nobody owns must survive every launch") {
  const Repeated repeated(case_of(Dtype::kBf16));
  CHECK(repeated.check(3, 3, PlainBackend({.writes_rows_without_adapter = true})).wrong > 0);
}

TEST_CASE("no column is known to be none of those that are looked at") {
  Case spec = telling_cases().front();
  spec.layer.widths = {640};
  spec.layer.y_stride = 0;
  const Repeated repeated(spec);
  const std::uint64_t seeds = 40;
  for (std::int64_t column = 0; column < 40; ++column) {
    CAPTURE(column);
    const PlainBackend spoils({.then = [&](const Problem& problem, const Operands& operands) {
      for (std::int64_t row = 0; row < problem.tokens; ++row) {
        if (problem.acts_on(row)) {
          store(problem.dtype[Role::kY], operands.y,
                row * problem.y_stride + problem.offset_start + column, 1000);
        }
      }
    }});
    std::uint64_t seed = 0;
    while (seed < seeds && repeated.check(2, 2, spoils, seed).wrong == 0) {
      ++seed;
    }
    CHECK(seed < seeds);
  }
}
