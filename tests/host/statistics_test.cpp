#include "measure/statistics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

using lora_bench::median_half_width;
using lora_bench::summarize;

TEST_CASE("quartiles interpolate between order statistics, whatever the order of the samples") {
  const std::vector<double> samples{4, 1, 3, 2};
  const lora_bench::Summary summary = summarize(samples);
  CHECK(summary.min == 1);
  CHECK(summary.q1 == doctest::Approx(1.75));
  CHECK(summary.median == doctest::Approx(2.5));
  CHECK(summary.q3 == doctest::Approx(3.25));
  CHECK(summary.max == 4);
}

TEST_CASE("a single sample is its own summary") {
  const std::vector<double> samples{7};
  const lora_bench::Summary summary = summarize(samples);
  CHECK(summary.min == 7);
  CHECK(summary.q1 == 7);
  CHECK(summary.median == 7);
  CHECK(summary.max == 7);
}

TEST_CASE("statistics of no samples are refused") {
  CHECK_THROWS_AS(static_cast<void>(summarize({})), std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(median_half_width({})), std::invalid_argument);
}

TEST_CASE("fewer than six samples claim nothing about the median") {
  const std::vector<double> five{1, 2, 3, 4, 5};
  CHECK(std::isinf(median_half_width(five)));
  const std::vector<double> six{1, 2, 3, 4, 5, 6};
  CHECK(median_half_width(six) == doctest::Approx(2.5));  // the whole range: 96.9 %
}

TEST_CASE("the interval of the median is that of the binomial table") {
  // n = 15: ranks 4 and 12 (96.5 %); n = 50: ranks 18 and 33 (96.7 %).
  std::vector<double> samples(15);
  std::iota(samples.begin(), samples.end(), 1.0);
  CHECK(median_half_width(samples) == doctest::Approx((12.0 - 4.0) / 2));
  samples.resize(50);
  std::iota(samples.begin(), samples.end(), 1.0);
  CHECK(median_half_width(samples) == doctest::Approx((33.0 - 18.0) / 2));
}

TEST_CASE("thousands of samples do not underflow the binomial") {
  std::vector<double> samples(5001);
  std::iota(samples.begin(), samples.end(), 1.0);
  const double half_width = median_half_width(samples);
  CHECK(half_width > 60);
  CHECK(half_width < 80);  // 1.96 * sqrt(5001) / 2 = 69
}
