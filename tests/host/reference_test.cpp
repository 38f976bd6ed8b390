#include "reference/reference.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "support/cpu_case.h"
#include "support/reference_case.h"

using namespace lora_bench::reference;

namespace {

using Values = std::vector<double>;
using Values32 = std::vector<float>;
using Flags = std::vector<std::uint8_t>;

Rows all_rows(ReferenceCase& given, Rounding rounding = Rounding::kBounded,
              const Arithmetic& arithmetic = {}) {
  std::vector<std::int64_t> tokens;
  for (std::size_t token = 0; token < given.adapter_of_token.size(); ++token) {
    tokens.push_back(static_cast<std::int64_t>(token));
  }
  return evaluate(given.ready(), arithmetic, tokens, rounding);
}

}  // namespace

TEST_CASE("reference: linear adds the scaled delta to the columns of the slice alone") {
  ReferenceCase given = small_case();
  const Rows rows = all_rows(given);
  CHECK(rows.columns == 4);
  CHECK(rows.expected == Values{10, 134, -27, 40, 50, 60, 70, 80});
  CHECK(rows.owned == Flags{0, 1, 1, 0, 0, 0, 0, 0});
  CHECK(rows.bound[0] == 0);
  CHECK(rows.bound[1] > 0);
  CHECK(rows.bound[5] == 0);
}

TEST_CASE("reference: rows come in the order in which they were asked for") {
  ReferenceCase given = small_case();
  const std::vector<std::int64_t> tokens{1, 0, 1};
  const Rows rows = evaluate(given.ready(), {}, tokens);
  CHECK(rows.tokens == tokens);
  CHECK(rows.expected == Values{50, 60, 70, 80, 10, 134, -27, 40, 50, 60, 70, 80});
}

TEST_CASE("reference: shrink gives scaled h, lanes at or above the rank belong to nobody") {
  ReferenceCase given = small_case();
  given.problem.expand = false;
  const Rows rows = all_rows(given);
  CHECK(rows.columns == 2);
  CHECK(rows.expected == Values{57, 0, 0, 0});
  CHECK(rows.owned == Flags{1, 0, 0, 0});
  given.problem.scale_at_shrink = false;
  CHECK(all_rows(given).expected == Values{19, 0, 0, 0});
}

TEST_CASE("reference: expand takes h as given and scales it only if the scale is applied there") {
  ReferenceCase given = small_case();
  given.problem.shrink = false;
  given.x.clear();
  given.h = {4, 1000, 1000, 1000};
  CHECK(all_rows(given).expected == Values{10, 28, 26, 40, 50, 60, 70, 80});
  given.problem.scale_at_shrink = false;
  CHECK(all_rows(given).expected == Values{10, 44, 18, 40, 50, 60, 70, 80});
}

TEST_CASE("reference: where the scale is applied does not change the result of linear") {
  ReferenceCase given = small_case();
  given.problem.scale_at_shrink = false;
  CHECK(all_rows(given).expected == Values{10, 134, -27, 40, 50, 60, 70, 80});
}

TEST_CASE("reference: bias is added unscaled to the rows of its adapter") {
  ReferenceCase given = small_case();
  given.bias = {{0.5F, 0.25F}};
  CHECK(all_rows(given).expected == Values{10, 134.5, -26.75, 40, 50, 60, 70, 80});
}

TEST_CASE("reference: without add_inputs owned columns are replaced and no others") {
  ReferenceCase given = small_case();
  given.problem.add_inputs = false;
  given.bias = {{0.5F, 0.25F}};
  CHECK(all_rows(given).expected == Values{10, 114.5, -56.75, 40, 50, 60, 70, 80});
}

TEST_CASE("reference: an adapter of rank 0 leaves its rows alone, bias and add_inputs aside") {
  ReferenceCase given = small_case();
  given.rank = {0};
  given.bias = {{0.5F, 0.25F}};
  given.problem.add_inputs = false;
  const Rows rows = all_rows(given);
  CHECK(rows.expected == Values{10, 20, 30, 40, 50, 60, 70, 80});
  CHECK(rows.owned == Flags(8, 0));
}

TEST_CASE("reference: slices lie side by side, a slice of width 0 takes no room") {
  ReferenceCase given = small_case();
  given.problem.widths = {1, 0, 1};
  given.a = {{5, 7, 1000, 1000}, {1000, 1000, 1000, 1000}, {1, 0, 1000, 1000}};
  given.b = {{2, 1000}, {}, {4, 1000}};
  const Rows rows = all_rows(given);
  // Slice 0: 57 * 2 at column 1; slice 2: h = 3 * 1, 3 * 4 = 12 at column 2.
  CHECK(rows.expected == Values{10, 134, 42, 40, 50, 60, 70, 80});
  given.problem.expand = false;
  const Rows h = all_rows(given);
  CHECK(h.expected == Values{57, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0});
  CHECK(h.owned == Flags{1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("reference: every token finds the slot of its own adapter") {
  ReferenceCase given = small_case();
  given.adapter_of_token = {1, 0};
  given.rank = {1, 2};
  given.scale = {1, 2};
  given.x = {1, 2, 3, 4};
  given.a = {{1, 1, 1000, 1000, 1, 0, 0, 1}};
  given.b = {{1, 1000, 10, 1000, 1, 1, 1, -1}};
  // Token 0, adapter 1: h = 2 * (1, 2), delta = (6, -2). Token 1, adapter 0: h = 7, (7, 70).
  CHECK(all_rows(given).expected == Values{10, 26, 28, 40, 50, 67, 140, 80});
}

TEST_CASE("reference: strides of x and y are honoured") {
  ReferenceCase given = small_case();
  given.problem.x_stride = 3;
  given.x = {1, 2, 1000, 100, 100, 1000};
  given.problem.y_stride = 3;
  given.y = {10, 20, 30, 50, 60, 70};
  given.adapter_of_token = {-1, 0};
  given.x = {100, 100, 1000, 1, 2, 1000};
  CHECK(all_rows(given).expected == Values{10, 20, 30, 50, 174, 13});
}

TEST_CASE("reference: a batch without tokens gives no rows") {
  ReferenceCase given = small_case();
  given.adapter_of_token.clear();
  CHECK(all_rows(given).expected.empty());
}

TEST_CASE("reference: a narrow intermediate is rounded when modelled, bounded when not") {
  ReferenceCase given = small_case();
  given.x = {1, 1, 0, 0};
  given.a = {{256, 1, 0, 0}};
  given.scale = {1};
  Arithmetic narrow;
  narrow.intermediate = Number::kBf16;
  // 257 lies half way between the bf16 neighbours 256 and 258: to even.
  CHECK(all_rows(given, Rounding::kModelled, narrow).expected[1] == 20 + 2 * 256);
  const Rows bounded = all_rows(given, Rounding::kBounded, narrow);
  CHECK(bounded.expected[1] == 20 + 2 * 257);
  CHECK(bounded.bound[1] >= 2);
  CHECK(bounded.bound[1] < 2.1);
  CHECK(all_rows(given).bound[1] < 0.001);
}

TEST_CASE("reference: a declared rounding of delta is modelled in the output dtype") {
  ReferenceCase given = small_case();
  given.y = {0, 1, 0, 0, 0, 0, 0, 0};
  given.b = {{0x1p-24F, 0, 1, 0}};
  given.x = {1, 0, 0, 0};
  given.a = {{1, 0, 0, 0}};
  given.scale = {1};
  Arithmetic arithmetic;
  arithmetic.rounds_delta = true;
  CHECK(all_rows(given, Rounding::kModelled, arithmetic).expected[1] == 1 + 0x1p-24);
  CHECK(all_rows(given, Rounding::kBounded, arithmetic).bound[2] > all_rows(given).bound[2]);
}

TEST_CASE("reference: the bound grows with each declared source of error") {
  ReferenceCase given = small_case();
  const double least = all_rows(given).bound[1];
  const auto bound_of = [&](auto change) {
    Arithmetic arithmetic;
    change(arithmetic);
    return all_rows(given, Rounding::kBounded, arithmetic).bound[1];
  };
  CHECK(bound_of([](Arithmetic& a) { a.shrink_depth = 8; }) > least);
  CHECK(bound_of([](Arithmetic& a) { a.expand_depth = 8; }) > least);
  CHECK(bound_of([](Arithmetic& a) { a.unit_roundoff = 0x1p-23; }) > least);
  CHECK(bound_of([](Arithmetic& a) { a.partial = Number::kBf16; }) > 100 * least);
  CHECK(bound_of([](Arithmetic& a) { a.intermediate = Number::kFp16; }) > 100 * least);
}

TEST_CASE("reference: on tensor cores a subnormal fp16 number counts as the least normal one") {
  // 692.5 times -7 units of 2^-24, and 1 times one of them: seen on a GPU to lose 2^-16 of the sum.
  const std::vector<std::uint16_t> x{0x6169, 0x3c00};
  const std::vector<std::uint16_t> a{0x8007, 0x0001};
  ReferenceCase given = small_case();
  given.adapter_of_token = {0};
  given.rank = {1};
  given.scale = {1};
  Problem problem = given.ready();
  problem.numbers = all_of(Number::kFp16);
  problem.expand = false;
  problem.in_features = problem.x_stride = 2;
  problem.max_rank = 1;
  problem.widths = {1};
  problem.x = x.data();
  problem.a = {a.data()};
  Arithmetic arithmetic;
  arithmetic.shrink_depth = 16;
  const std::vector<std::int64_t> tokens{0};
  const auto bound = [&] { return evaluate(problem, arithmetic, tokens).bound.front(); };
  const double of_values = 16 * 0x1p-23 * (692.5 * 7 + 1) * 0x1p-24;
  CHECK(bound() < of_values);
  arithmetic.unit_roundoff = 0x1p-23;
  CHECK(bound() >= 16 * 0x1p-23 * 692.5 * 0x1p-14);
  const std::vector<std::uint16_t> normal{0x9c00, 0x0400};
  problem.a = {normal.data()};
  CHECK(bound() < 1.1 * 16 * 0x1p-23 * (692.5 * 0x1p-8 + 0x1p-14));
}

TEST_CASE("reference: the bound is what the roundings of the longest path add up to") {
  ReferenceCase given = small_case();
  given.scale = {1};
  Arithmetic arithmetic;
  arithmetic.shrink_depth = 9;  // and one rounding of each fp32 product, one of the scale
  const double h = 19;
  const double e_h = 11 * 0x1p-24 * h;
  // expand: depth 0, one rounding of the product; |y0| = 20.
  CHECK(all_rows(given, Rounding::kBounded, arithmetic).bound[1] ==
        doctest::Approx(2 * (e_h + 0x1p-24 * h) + 0x1p-24 * 20).epsilon(1e-5).scale(0));
}

TEST_CASE("reference: a narrow sum is rounded as often as partials meet") {
  ReferenceCase given = small_case();
  given.problem.expand = false;
  given.a = {{5, -2, 1000, 1000}};  // 5 - 4 = 1 of terms that add up to 9, times 3
  const auto bound_of = [&](Number partial, std::int64_t partials) {
    Arithmetic arithmetic;
    arithmetic.partial = partial;
    arithmetic.partials = partials;
    return all_rows(given, Rounding::kBounded, arithmetic).bound[0];
  };
  const double others = bound_of(Number::kFp32, 1);  // products and the scale, in fp32
  CHECK(others < 1e-5);
  // One partial is the sum, several may each be as large as the terms: 2 u / (1 - 2 u).
  CHECK(bound_of(Number::kBf16, 1) - others ==
        doctest::Approx(3 * 0x1p-8 * 1).epsilon(1e-4).scale(0));
  CHECK(bound_of(Number::kBf16, 2) - others ==
        doctest::Approx(3 * 9 * 0x1p-7 / (1 - 0x1p-7)).epsilon(1e-4).scale(0));
  CHECK(bound_of(Number::kFp16, 1) - others ==
        doctest::Approx(3 * (0x1p-11 * 1 + 0x1p-25)).epsilon(1e-4).scale(0));

  // So small that an fp16 partial is half a step of its subnormal numbers off, each of them.
  given.x = {0x1p-60F, 0x1p-60F, 0, 0};
  CHECK(bound_of(Number::kFp16, 1) == doctest::Approx(3 * 0x1p-25).epsilon(1e-4).scale(0));
  CHECK(bound_of(Number::kFp16, 2) == doctest::Approx(3 * 2 * 0x1p-25).epsilon(1e-4).scale(0));
}

TEST_CASE("reference: stored terms of h are rounded as they are large, not as their products are") {
  ReferenceCase given = small_case();
  given.problem.expand = false;
  given.problem.scale_at_shrink = false;
  given.problem.in_features = given.problem.x_stride = given.problem.max_rank = 8;
  given.adapter_of_token = {0};
  given.x = Values32(8, 1);
  given.a = {Values32(64, 1000)};
  // Terms of two products each: 4, -1, 2, -3. Of products 800 and more.
  std::copy_n(std::vector<float>{104, -100, 99, -100, 102, -100, 97, -100}.begin(), 8,
              given.a[0].begin());
  Arithmetic arithmetic;
  arithmetic.unit_roundoff = 0;
  arithmetic.intermediate = Number::kBf16;
  arithmetic.terms_of_h = 4;
  const double u = 0x1p-8;
  const double of_terms = u * (4 + 1 + 2 + 3);
  const double of_sums = 2 * u / (1 - 2 * u) * ((4 + 2) + of_terms);
  const double of_result = u * (2 + of_terms + of_sums);
  const double bound = all_rows(given, Rounding::kBounded, arithmetic).bound[0];
  CHECK(bound == doctest::Approx(of_terms + of_sums + of_result).epsilon(1e-6).scale(0));

  // A narrow partial is a whole term where each term is of one.
  const auto more = [&](std::int64_t partials) {
    Arithmetic narrow = arithmetic;
    narrow.intermediate = Number::kFp32;
    narrow.partial = Number::kBf16;
    narrow.partials = partials;
    return all_rows(given, Rounding::kBounded, narrow).bound[0];
  };
  CHECK(more(1) == doctest::Approx(of_terms).epsilon(1e-6).scale(0));
  CHECK(more(2) > 100 * of_terms);

  // Runs that do not divide K are not known: terms may be as large as the products.
  arithmetic.terms_of_h = 3;
  CHECK(all_rows(given, Rounding::kBounded, arithmetic).bound[0] > 800 * u);
}

TEST_CASE("reference: no order of adding stored terms of h leaves the bound") {
  constexpr std::int64_t kLanes = 8;
  constexpr std::int64_t kOfTerm = 3;
  double most = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    lora_bench::test::Dice dice{seed};
    const Number stored = dice.one_of<Number>({Number::kBf16, Number::kFp16});
    const auto terms = dice.one_of<std::size_t>({2, 3, 4, 8});
    const double u = stored == Number::kBf16 ? 0x1p-8 : 0x1p-11;
    ReferenceCase given = small_case();
    given.problem.expand = false;
    given.problem.max_rank = kLanes;
    given.problem.in_features = given.problem.x_stride = static_cast<std::int64_t>(terms) * kOfTerm;
    given.adapter_of_token = {0};
    given.rank = {kLanes};
    given.problem.scale_at_shrink = dice.below(2) == 0;
    given.scale = {0.75F};
    const double scale = given.problem.scale_at_shrink ? 0.75 : 1;
    given.x.clear();
    given.a = {{}};
    const std::int64_t k = given.problem.in_features;
    for (std::int64_t i = 0; i < k; ++i) {
      given.x.push_back(static_cast<float>(dice.below(2001) - 1000));
    }
    // Of every second case one term is far larger than the others.
    for (std::int64_t i = 0; i < kLanes * k; ++i) {
      const bool small = seed % 2 == 0 && i % k >= kOfTerm;
      given.a[0].push_back(static_cast<float>(dice.below(2001) - 1000) *
                           (small ? 0x1p-22F : 0x1p-10F));
    }
    Arithmetic arithmetic;
    arithmetic.intermediate = stored;
    arithmetic.terms_of_h = static_cast<std::int64_t>(terms);
    arithmetic.shrink_depth = kOfTerm + arithmetic.terms_of_h;
    const Rows rows = all_rows(given, Rounding::kBounded, arithmetic);
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      Values real(terms);
      for (std::int64_t i = 0; i < k; ++i) {
        real[static_cast<std::size_t>(i / kOfTerm)] +=
            scale * static_cast<double>(given.x[static_cast<std::size_t>(i)]) *
            static_cast<double>(given.a[0][static_cast<std::size_t>(lane * k + i)]);
      }
      const double expected = rows.expected[static_cast<std::size_t>(lane)];
      const double bound = rows.bound[static_cast<std::size_t>(lane)];
      // Every rounding goes up, or to the nearest; the largest first, or the positive, or any.
      for (int order = 0; order < 6; ++order) {
        for (const bool up : {true, false}) {
          const auto round = [&](double value) {
            return up ? value + u * std::fabs(value) : round_to(stored, value);
          };
          Values left;
          for (const double term : real) {
            left.push_back(round(term));
          }
          std::sort(left.begin(), left.end(), [&](double one, double other) {
            return order == 0 ? std::fabs(one) > std::fabs(other) : one > other;
          });
          while (left.size() > 1) {
            const std::size_t first =
                order < 2 ? 0 : static_cast<std::size_t>(dice.below(std::ssize(left)));
            std::swap(left[0], left[first]);
            const std::size_t second =
                order < 2 ? 1 : 1 + static_cast<std::size_t>(dice.below(std::ssize(left) - 1));
            left[0] = round(left[0] + left[second]);
            left.erase(left.begin() + static_cast<std::ptrdiff_t>(second));
          }
          const double off = std::fabs(left[0] - expected);
          REQUIRE(off <= bound);
          most = std::max(most, off / bound);
        }
      }
    }
  }
  CHECK(most > 0.95);
}

TEST_CASE("reference: the error of a rounded delta is half a unit of delta, not of y") {
  ReferenceCase given = small_case();  // delta 114 on 20, -57 on 30
  Arithmetic arithmetic;
  const Rows plain = all_rows(given, Rounding::kBounded, arithmetic);
  arithmetic.rounds_delta = true;
  const Rows rounded = all_rows(given, Rounding::kBounded, arithmetic);
  CHECK(rounded.bound[1] - plain.bound[1] == doctest::Approx(0x1p-24 * 114).epsilon(1e-4).scale(0));
  CHECK(rounded.bound[2] - plain.bound[2] == doctest::Approx(0x1p-24 * 57).epsilon(1e-4).scale(0));

  // 4097 * 8193 = 33566721 lies in steps of 4: 33566720.
  given.x = {4097, 0, 0, 0};
  given.a = {{1, 0, 0, 0}};
  given.b = {{8193, 0, 1, 0}};
  given.scale = {1};
  given.y = {0, 3, 0, 0, 0, 0, 0, 0};
  CHECK(all_rows(given, Rounding::kModelled, {}).expected[1] == 33566721 + 3);
  CHECK(all_rows(given, Rounding::kModelled, arithmetic).expected[1] == 33566720 + 3);
}

TEST_CASE("reference: the result is linear in x") {
  ReferenceCase given = small_case();
  given.y.assign(8, 0);
  const Rows one = all_rows(given);
  for (float& value : given.x) {
    value *= -4;
  }
  const Rows four = all_rows(given);
  for (std::size_t i = 0; i < one.expected.size(); ++i) {
    CHECK(four.expected[i] == -4 * one.expected[i]);
    CHECK(four.bound[i] == doctest::Approx(4 * one.bound[i]).scale(1e-9));
  }
}

TEST_CASE("reference: the largest partial counts |terms| in units of their lowest bit") {
  ReferenceCase given = small_case();
  // h: 3 * (5 + 14) = 57 units; y: |57 * 2| + 20 = 134, whose terms are all even: 67 units;
  // |57 * 1| + 30 = 87.
  CHECK(all_rows(given, Rounding::kModelled).largest_partial == 87);
  given.y[2] = 0.25F;
  CHECK(all_rows(given, Rounding::kModelled).largest_partial == 4 * 57 + 1);
  CHECK(exact_limit({}) == 0x1p24);
  Arithmetic narrow;
  narrow.partial = Number::kBf16;
  CHECK(exact_limit(narrow) == 256);
}

TEST_CASE("reference: many rows and columns agree with a plain sum, whatever the tiling") {
  constexpr std::int64_t kTokens = 150;
  constexpr std::int64_t kWidth = 700;
  ReferenceCase given;
  given.problem.in_features = given.problem.x_stride = 3;
  given.problem.max_rank = 2;
  given.problem.widths = {kWidth};
  given.problem.y_stride = kWidth;
  given.rank = {2, 1};
  given.scale = {1, -2};
  const auto fill = [](std::vector<float>& to, std::int64_t count, int period) {
    for (std::int64_t i = 0; i < count; ++i) {
      to.push_back(static_cast<float>(i % period - period / 2));
    }
  };
  fill(given.x, kTokens * 3, 7);
  fill(given.a.emplace_back(), 2 * 2 * 3, 5);
  fill(given.b.emplace_back(), 2 * kWidth * 2, 11);
  fill(given.y, kTokens * kWidth, 13);
  for (std::int32_t token = 0; token < kTokens; ++token) {
    given.adapter_of_token.push_back(token % 3 - 1);
  }
  const Rows rows = all_rows(given);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < kTokens * kWidth; ++i) {
    const std::int64_t token = i / kWidth;
    const std::int64_t id = token % 3 - 1;
    double expected = static_cast<double>(i % 13 - 6);
    for (std::int64_t lane = 0; id >= 0 && lane < 2 - id; ++lane) {
      double h = 0;
      for (std::int64_t k = 0; k < 3; ++k) {
        h += static_cast<double>((token * 3 + k) % 7 - 3) *
             static_cast<double>(((id * 2 + lane) * 3 + k) % 5 - 2);
      }
      const std::int64_t b = (id * kWidth + i % kWidth) * 2 + lane;
      expected += (id == 0 ? 1 : -2) * h * static_cast<double>(b % 11 - 5);
    }
    wrong += rows.expected[static_cast<std::size_t>(i)] == expected ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("reference: decoding knows normal, subnormal and special values of every format") {
  CHECK(decode(Number::kBf16, 0x3f80) == 1);
  CHECK(decode(Number::kBf16, 0xc049) == -3.140625);
  CHECK(decode(Number::kBf16, 0x0001) == 0x1p-133);
  CHECK(std::isinf(decode(Number::kBf16, 0x7f80)));
  CHECK(std::isnan(decode(Number::kBf16, 0xffff)));
  CHECK(decode(Number::kFp16, 0x7bff) == 65504);
  CHECK(decode(Number::kFp16, 0x8001) == -0x1p-24);
  CHECK(decode(Number::kE4m3, 0x7e) == 448);
  CHECK(std::isnan(decode(Number::kE4m3, 0xff)));
  CHECK(decode(Number::kE4m3, 0x01) == 0x1p-9);
  CHECK(decode(Number::kE5m2, 0x7b) == 57344);
  CHECK(std::isinf(decode(Number::kE5m2, 0x7c)));
  CHECK(decode(Number::kFp32, 0x3e800000) == 0.25);
}

TEST_CASE(
    "reference: rounding goes to the nearest, ties to even, and overflows as the format does") {
  CHECK(round_to(Number::kBf16, 257) == 256);
  CHECK(round_to(Number::kBf16, 259) == 260);
  CHECK(round_to(Number::kBf16, -257.0000001) == -258);
  CHECK(round_to(Number::kFp16, 65519.99) == 65504);
  CHECK(std::isinf(round_to(Number::kFp16, 65520)));
  CHECK(round_to(Number::kFp16, 0x1p-25) == 0);
  CHECK(round_to(Number::kFp16, 0x1.8p-24) == 0x1p-23);
  CHECK(round_to(Number::kE4m3, 464) == 448);
  CHECK(std::isnan(round_to(Number::kE4m3, 465)));
  CHECK(std::signbit(round_to(Number::kFp32, -0.0)));
  CHECK(std::isnan(round_to(Number::kBf16, std::numeric_limits<double>::quiet_NaN())));
}

TEST_CASE("reference: every bit pattern of the narrow formats survives decoding and encoding") {
  const auto check = [](Number number, std::uint32_t patterns) {
    std::uint32_t wrong = 0;
    for (std::uint32_t bits = 0; bits < patterns; ++bits) {
      const double value = decode(number, bits);
      const bool same = std::isnan(value) ? std::isnan(decode(number, encode(number, value)))
                                          : encode(number, value) == bits;
      wrong += same ? 0 : 1;
    }
    return wrong;
  };
  CHECK(check(Number::kBf16, 65536) == 0);
  CHECK(check(Number::kFp16, 65536) == 0);
  CHECK(check(Number::kE4m3, 256) == 0);
  CHECK(check(Number::kE5m2, 256) == 0);
}

TEST_CASE("reference: rounding to fp32 is the processor's own") {
  std::uint64_t state = 1;
  int wrong = 0;
  for (int i = 0; i < 100000; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double value = std::ldexp(static_cast<double>(static_cast<std::int64_t>(state)),
                                    static_cast<int>(state >> 56U) - 230);
    wrong +=
        round_to(Number::kFp32, value) == static_cast<double>(static_cast<float>(value)) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("reference: the product that serves as a ceiling takes time") {
  CHECK(product_seconds(64, 64, 64) > 0);
}

TEST_CASE("reference: a bound without end is no NaN, whatever is 0 beside it") {
  const double endless = std::numeric_limits<double>::infinity();
  Arithmetic loose;
  loose.unit_roundoff = 0x1p-8;
  loose.shrink_depth = loose.expand_depth = 1000;
  for (const bool at_shrink : {true, false}) {
    for (const bool adds : {true, false}) {
      CAPTURE(at_shrink);
      CAPTURE(adds);
      ReferenceCase given = small_case();
      given.problem.scale_at_shrink = at_shrink;
      given.problem.add_inputs = adds;
      CHECK(all_rows(given, Rounding::kBounded, loose).bound[1] == endless);
      for (float& b : given.b[0]) {
        b = 0;
      }
      CHECK_FALSE(std::isnan(all_rows(given, Rounding::kBounded, loose).bound[1]));
      given = small_case();
      given.problem.scale_at_shrink = at_shrink;
      given.problem.add_inputs = adds;
      given.scale = {0};
      CHECK_FALSE(std::isnan(all_rows(given, Rounding::kBounded, loose).bound[1]));
      given.x.assign(given.x.size(), 0);
      CHECK_FALSE(std::isnan(all_rows(given, Rounding::kBounded, loose).bound[1]));
    }
  }
}

TEST_CASE("reference: an h that fp16 does not hold bounds nothing after it") {
  Arithmetic half;
  half.intermediate = Number::kFp16;
  ReferenceCase given = small_case();
  CHECK(std::isfinite(all_rows(given, Rounding::kBounded, half).bound[1]));
  given.scale = {60000};
  CHECK(std::isinf(all_rows(given, Rounding::kBounded, half).bound[1]));
  given.problem.scale_at_shrink = false;  // applied to h, not in it
  CHECK(std::isfinite(all_rows(given, Rounding::kBounded, half).bound[1]));
}
