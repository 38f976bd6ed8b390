#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/dtype.h"
#include "verify/oracle.h"
#include "verify/verify.h"

using namespace lora_bench;

namespace {

// One adapter that adds `delta` to every column of y, which holds `before`: x and A are 1, B is
// delta, for as many rows as asked.
struct Plain {
  Problem problem;
  Tensors tensors;
  Numerics numerics;

  Plain(Dtype dtype, std::int64_t columns, float before, float delta, std::int64_t rows = 1) {
    problem.dtype = OperandDtypes(dtype, problem.dtype[Role::kH]);
    problem.tokens = rows;
    problem.in_features = problem.x_stride = 1;
    problem.widths = {columns};
    problem.y_stride = columns;
    problem.slots = problem.max_rank = 1;
    problem.rank = {1};
    problem.scale = {1};
    problem.plan = make_plan(std::vector<std::int32_t>(static_cast<std::size_t>(rows), 0), 1);
    tensors = draw_tensors(problem, Fill::kTiming, 1);
    fill(tensors.x, 1);
    fill(tensors.a[0], 1);
    fill(tensors.b[0], delta);
    fill(tensors.y, before);
    numerics.unit_roundoff = 0;
    numerics.shrink_depth = numerics.expand_depth = 2;
  }

  static void fill(HostTensor& tensor, float value) {
    for (std::int64_t index = 0; index < tensor.elements; ++index) {
      store(tensor.dtype, tensor.data.data(), index, value);
    }
  }
  [[nodiscard]] std::vector<std::byte> output(float value) const {
    HostTensor y = tensors.y;
    fill(y, value);
    return y.data;
  }
  [[nodiscard]] Comparison after(std::int64_t rounds, float value) const {
    return compare_accumulated(problem, {&tensors}, numerics, output(value).data(), rounds, {0}, 1);
  }
};

}  // namespace

// 2 (2 + 2) roundings of 2^-10 of 1 each launch.
TEST_CASE("accumulated: y may be as far off as its own roundings in each launch, and no further") {
  Plain plain(Dtype::kFp32, 1, 1, 0);
  plain.numerics.unit_roundoff = 0x1p-10;
  const float most = 1 + 0x1p-7F, least = 1 - 0x1p-7F;
  CHECK(plain.after(1, most).wrong == 0);
  CHECK(plain.after(1, least).wrong == 0);
  CHECK(plain.after(1, std::nextafter(most, 2.0F)).wrong == 1);
  CHECK(plain.after(1, std::nextafter(least, 0.0F)).wrong == 1);
  CHECK(plain.after(2, std::nextafter(most, 2.0F)).wrong == 0);
}

TEST_CASE("accumulated: where every second launch of one set could be left out is known") {
  const Plain adds(Dtype::kFp32, 1, 0, 1);
  for (const std::int64_t rounds : {1, 2, 3, 4}) {
    CAPTURE(rounds);
    const Comparison found = adds.after(rounds, static_cast<float>(rounds));
    CHECK(found.wrong == 0);
    // Of one launch, the other half of two is none.
    CHECK(found.zero_share == (rounds == 1 ? 1 : 0));
  }
  CHECK(Plain(Dtype::kFp32, 1, 1, 0).after(2, 1).zero_share == 1);
}

TEST_CASE("accumulated: as many elements that are infinite are looked at as others") {
  const Plain plain(Dtype::kFp32, 1024, 0, 1);
  CHECK(plain.after(2, 2).compared == 256);
  const Comparison infinite = plain.after(2, std::numeric_limits<float>::infinity());
  CHECK(infinite.compared == 512);
  CHECK(infinite.wrong == 512);
}

// The next number of bf16 above 1 is 2^-7 away, and half of that is the last rounding.
TEST_CASE("compare: the share of the bound is what no last rounding explains") {
  Plain plain(Dtype::kBf16, 1, 0, 1);
  plain.numerics.unit_roundoff = 0x1p-8;
  const std::vector<std::int64_t> rows{0};
  const double bound =
      evaluate_rows(plain.problem, plain.tensors, plain.numerics, rows).bound.front();
  REQUIRE(bound > 0x1p-8);
  const Comparison found = compare_output(plain.problem, plain.tensors, plain.numerics,
                                          plain.output(1 + 0x1p-7F).data(), rows);
  CHECK(found.wrong == 0);
  CHECK(found.bound_share == doctest::Approx(0x1p-8 / bound));
  CHECK(compare_output(plain.problem, plain.tensors, plain.numerics, plain.output(1).data(), rows)
            .bound_share == 0);
}

TEST_CASE("scan: of many rows with an infinity the first sixteen are told") {
  const Plain plain(Dtype::kBf16, 8, 0, 1, 20);
  const std::vector<std::byte> y = plain.output(std::numeric_limits<float>::infinity());
  std::vector<std::int64_t> first(16);
  std::iota(first.begin(), first.end(), 0);
  CHECK(infinite_rows(plain.problem, y.data()) == first);
}

namespace {

// Of one group of so many rows, in their order.
std::vector<std::int64_t> sampled(std::int64_t tokens, std::int64_t most) {
  Problem problem;
  problem.tokens = tokens;
  problem.plan = make_plan(std::vector<std::int32_t>(static_cast<std::size_t>(tokens), 0), 1);
  return sample_rows(problem, most, 1);
}

bool holds(const std::vector<std::int64_t>& rows, std::int64_t row) {
  return std::binary_search(rows.begin(), rows.end(), row);
}

}  // namespace

TEST_CASE("sample: both sides of the first and the last boundary of every tile are compared") {
  const std::vector<std::int64_t> rows = sampled(512, 60);
  for (const std::int64_t boundary : {16, 32, 64, 128, 256, 384, 448, 480, 496}) {
    CAPTURE(boundary);
    CHECK(holds(rows, boundary - 1));
    CHECK(holds(rows, boundary));
  }
  // Beyond 2^16 rows there are more boundaries, of which the largest tiles come last.
  const std::vector<std::int64_t> many = sampled(70000, 200);
  for (const std::int64_t boundary : {1 << 15, 1 << 16, 128, 256, 70000 / 256 * 256}) {
    CAPTURE(boundary);
    CHECK(holds(many, boundary - 1));
    CHECK(holds(many, boundary));
  }
}

// Of 22 rows two are the ends and ten boundaries, so ten are drawn, one of each tenth.
TEST_CASE("sample: boundaries leave half of the rows to be drawn from everywhere") {
  const std::vector<std::int64_t> rows = sampled(5120, 22);
  for (std::int64_t tenth = 0; tenth < 10; ++tenth) {
    CAPTURE(tenth);
    CHECK(std::any_of(rows.begin(), rows.end(),
                      [&](std::int64_t row) { return row / 512 == tenth; }));
  }
  CHECK(rows.size() <= 22);
}
