#include "verify/mutants.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>

#include "core/error.h"

using namespace lora_bench;

namespace {

// Two rows of two, an adapter of rank 1 and a base row: y0 + 0.5 * (x . a) * b by hand.
struct TinyLinear {
  Problem problem;
  std::vector<float> x{1, 2, 3, 4}, a{10, 1}, b{1, -1}, y{100, 200, 300, 400}, h{7, 7};
  std::vector<float> scale{0.5F};
  std::vector<std::int32_t> rank{1};

  TinyLinear() {
    problem.dtype = OperandDtypes(Dtype::kFp32, problem.dtype[Role::kH]);
    problem.tokens = 2;
    problem.in_features = 2;
    problem.widths = {2};
    problem.x_stride = 2;
    problem.y_stride = 2;
    problem.slots = 1;
    problem.max_rank = 1;
    problem.rank = {1};
    problem.scale = scale;
    const std::vector<std::int32_t> ids{-1, 0};
    problem.plan = make_plan(ids, 1);
  }

  std::vector<float> run(const std::string& fault) {
    Operands operands;
    operands.x = x.data();
    operands.a = {a.data()};
    operands.b = {b.data()};
    operands.h = h.data();
    operands.y = y.data();
    operands.adapter_of_token = problem.plan.adapter_of_token.data();
    operands.token_order = problem.plan.token_order.data();
    operands.active_ids = problem.plan.active_ids.data();
    operands.group_starts = problem.plan.group_starts.data();
    operands.rank = rank.data();
    operands.scale = scale.data();
    make_mutant(fault)->launch(problem, operands, {});
    return y;
  }
};

}  // namespace

TEST_CASE("the kernel that mutants derive from adds the scaled delta and leaves base rows") {
  CHECK(TinyLinear().run("none") == std::vector<float>{100, 200, 317, 383});
}

TEST_CASE("a mutant differs from the right kernel by its fault alone") {
  CHECK(TinyLinear().run("no-op") == std::vector<float>{100, 200, 300, 400});
  CHECK(TinyLinear().run("scale-missing") == std::vector<float>{100, 200, 334, 366});
  CHECK(TinyLinear().run("y-overwritten") == std::vector<float>{100, 200, 17, -17});
  CHECK(TinyLinear().run("neighbour-row") == std::vector<float>{100, 200, 306, 394});
  CHECK(TinyLinear().run("none-is-first-adapter") == std::vector<float>{106, 194, 317, 383});
}

TEST_CASE("an adapter of rank 0 leaves its rows alone") {
  TinyLinear tiny;
  tiny.rank = {0};
  CHECK(tiny.run("none") == std::vector<float>{100, 200, 300, 400});
}

TEST_CASE("the catalogue holds at least thirty faults, each named once and explained") {
  std::set<std::string> keys;
  for (const MutantDoc& doc : mutants()) {
    CAPTURE(doc.fault);
    CHECK(keys.insert(doc.fault).second);
    CHECK_FALSE(doc.meaning.empty());
    CHECK_FALSE(doc.source.empty());
    CHECK(make_mutant(doc.fault)->name() == "mutant:" + doc.fault);
  }
  CHECK(keys.size() >= 30);
}

TEST_CASE("an unknown mutant is refused with the name that was meant") {
  CHECK_THROWS_WITH_AS(make_mutant("column-shiftd"), doctest::Contains("column-shifted"),
                       UsageError);
}

TEST_CASE("0 times what is overwritten is nothing unless that is no number") {
  TinyLinear tiny;
  tiny.problem.add_inputs = false;
  CHECK(tiny.run("overwritten-times-zero") == std::vector<float>{100, 200, 17, -17});
  tiny.y[3] = std::numeric_limits<float>::signaling_NaN();
  CHECK(std::isnan(tiny.run("overwritten-times-zero")[3]));
  CHECK(tiny.run("none")[3] == -17);
}
