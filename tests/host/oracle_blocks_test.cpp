#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "reference/nearest.h"
#include "reference/reference.h"
#include "support/reference_case.h"

using namespace lora_bench::reference;

namespace {

bool same(double left, double right) {
  return std::bit_cast<std::uint64_t>(left) == std::bit_cast<std::uint64_t>(right) ||
         (std::isnan(left) && std::isnan(right));
}

// Three adapters of ragged ranks, lanes in several blocks and columns in several tiles.
ReferenceCase many_blocks() {
  ReferenceCase given;
  given.problem.in_features = given.problem.x_stride = 40000;
  given.problem.max_rank = 20;
  given.problem.widths = {600, 0, 30};
  given.problem.y_stride = 640;
  given.problem.offset_start = 3;
  given.rank = {20, 7, 13};
  given.scale = {1, -2, 0.3F};
  given.adapter_of_token = {0, 2, 0, -1, 1, 2};
  std::uint64_t index = 0;
  const auto fill = [&](std::vector<float>& to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      to.push_back(static_cast<float>(lora_bench::random_below(5, 0, index++, 2001)) / 1000 - 1);
    }
  };
  fill(given.x, 6 * 40000);
  fill(given.y, 6 * 640);
  for (const std::int64_t width : given.problem.widths) {
    fill(given.a.emplace_back(), 3 * 20 * 40000);
    fill(given.b.emplace_back(), 3 * width * 20);
  }
  return given;
}

// One row of one adapter, with as many lanes as its rank.
ReferenceCase one_row(std::int64_t in_features, std::int64_t rank,
                      std::vector<std::int64_t> widths) {
  ReferenceCase given;
  given.problem.in_features = given.problem.x_stride = in_features;
  given.problem.max_rank = rank;
  given.problem.y_stride = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
  given.problem.widths = std::move(widths);
  given.adapter_of_token = {0};
  given.rank = {rank};
  given.scale = {1};
  given.y.assign(static_cast<std::size_t>(given.problem.y_stride), 0);
  return given;
}

}  // namespace

TEST_CASE("reference: a format for loops decodes and rounds as decode and round_to do") {
  for (const Number number :
       {Number::kFp32, Number::kBf16, Number::kFp16, Number::kE4m3, Number::kE5m2}) {
    CAPTURE(static_cast<int>(number));
    const Format format(number);
    const bool wide = number == Number::kFp32;
    const bool narrow = number == Number::kE4m3 || number == Number::kE5m2;
    const std::uint64_t patterns = narrow ? 256 : 65536;
    std::int64_t wrong = 0;
    for (std::uint64_t pattern = 0; pattern < patterns; ++pattern) {
      const auto bits = static_cast<std::uint32_t>(wide ? pattern * 65537 : pattern);
      const double value = decode(number, bits);
      wrong += same(format.decode(bits), value) ? 0 : 1;
      // The number, halfway to the next, and what is just beside that.
      const double half = std::isfinite(value) ? spacing(number, value) / 2 : 0;
      for (const double at : {value, value + half, std::nextafter(value + half, 0),
                              std::nextafter(value + half, 2 * value + half)}) {
        wrong += same(format.nearest(at), round_to(number, at)) ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
    for (const double at : {0.0, -0.0, 1e-320, 1e300, -1e300, 65519.99, 65520.0, 464.0, 465.0,
                            0x1.fffffefp127, 0x1.ffffffp127}) {
      CAPTURE(at);
      CHECK(same(format.nearest(at), round_to(number, at)));
    }
  }
}

TEST_CASE("reference: no number of threads changes a bit") {
  ReferenceCase given = many_blocks();
  const Problem& problem = given.ready();
  Arithmetic arithmetic;
  arithmetic.shrink_depth = 40000;
  arithmetic.expand_depth = 22;
  const std::vector<std::int64_t> tokens{0, 1, 2, 3, 4, 5};
  for (const Rounding rounding : {Rounding::kBounded, Rounding::kModelled}) {
    const Rows one = evaluate(problem, arithmetic, tokens, rounding, 1);
    const Rows many = evaluate(problem, arithmetic, tokens, rounding, 7);
    CHECK(one.expected == many.expected);
    CHECK(one.bound == many.bound);
    CHECK(one.owned == many.owned);
    CHECK(one.largest_partial == many.largest_partial);
    // And the sum is the plain one, of every lane in every block.
    double wanted = static_cast<double>(given.y[2 * 640 + 3 + 599]);
    for (std::int64_t lane = 0; lane < 20; ++lane) {
      double h = 0;
      for (std::int64_t k = 0; k < 40000; ++k) {
        h += static_cast<double>(given.x[static_cast<std::size_t>(2 * 40000 + k)]) *
             static_cast<double>(given.a[0][static_cast<std::size_t>(lane * 40000 + k)]);
      }
      wanted += h * static_cast<double>(given.b[0][static_cast<std::size_t>(599 * 20 + lane)]);
    }
    CHECK(one.expected[2 * 640 + 3 + 599] == doctest::Approx(wanted).epsilon(1e-5));
  }
}

TEST_CASE("reference: the largest sum is told whichever tile and slice it lies in") {
  ReferenceCase given = one_row(1, 1, {600, 300});
  given.x = {1};
  given.a = {{1}, {1}};
  given.b = {std::vector<float>(600, 1), std::vector<float>(300, 1)};
  for (const std::size_t column : {0U, 300U, 599U, 600U, 899U}) {
    CAPTURE(column);
    given.y.assign(900, 0);
    given.y[column] = 1024;
    for (const std::int64_t threads : {1, 7}) {
      const std::vector<std::int64_t> tokens{0};
      CHECK(evaluate(given.ready(), Arithmetic{}, tokens, Rounding::kModelled, threads)
                .largest_partial == 1025);
    }
  }
}

TEST_CASE("reference: the bound of a lane is the same in every block of lanes") {
  ReferenceCase given = one_row(40000, 20, {20});
  given.x.assign(40000, 1);
  given.a.emplace_back(20 * 40000, 1.0F);
  given.b.emplace_back(20 * 20, 0.0F);
  for (std::size_t lane = 0; lane < 20; ++lane) {
    given.b[0][lane * 20 + lane] = 1;  // a column of y for each lane
  }
  Arithmetic arithmetic;
  arithmetic.shrink_depth = 40000;
  const Rows rows = evaluate(given.ready(), arithmetic, std::vector<std::int64_t>{0});
  CHECK(rows.bound[0] > 1);
  for (std::size_t lane = 0; lane < 20; ++lane) {
    CAPTURE(lane);
    CHECK(rows.expected[lane] == 40000);
    CHECK(rows.bound[lane] == rows.bound[0]);
  }
}

TEST_CASE("reference: the largest sum of a shrink is in units of its own lane, in any block") {
  ReferenceCase given = one_row(40000, 20, {1});
  given.x.assign(40000, 0.5F);
  given.b.emplace_back(20, 0.0F);
  for (const std::size_t lane : {1U, 9U, 19U}) {
    CAPTURE(lane);
    given.a = {std::vector<float>(20 * 40000, 1)};
    float* const a = given.a[0].data() + lane * 40000;
    std::fill(a, a + 40000, 0.25F);
    a[0] = 256;  // 1024 units
    CHECK(evaluate(given.ready(), Arithmetic{}, std::vector<std::int64_t>{0}, Rounding::kModelled)
              .largest_partial == 39999 + 1024);
  }
}
