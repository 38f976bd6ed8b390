#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "compare/compare.h"

using namespace lora_bench;

namespace {

Repeats repeats_at(std::vector<double> times_us, std::vector<double> yardsticks_us = {}) {
  Repeats repeats;
  repeats.row.status = Status::kPassed;
  repeats.row.time.us = times_us.empty() ? 100 : median_of(times_us);
  repeats.times_us = std::move(times_us);
  repeats.yardsticks_us = std::move(yardsticks_us);
  return repeats;
}

Repeats eight_at(double time_us, double yardstick_us = 0) {
  return repeats_at(std::vector<double>(8, time_us), yardstick_us > 0
                                                         ? std::vector<double>(8, yardstick_us)
                                                         : std::vector<double>{});
}

CompareOptions threshold_of(double threshold) {
  return {.threshold = threshold, .threshold_given = true};
}

bool says(const ComparedRow& row, const std::string& text) {
  CAPTURE(row.reason);
  return row.reason.find(text) != std::string::npos;
}

}  // namespace

// Of 8 repeats against 8, C(16, 8) = 12870 orders: 1 has no ratio below 1, 1 has one, 2 have two,
// 3 three, 5 four, 7 five ...
TEST_CASE("the rank of an interval's end counts orders of the repeats") {
  CHECK(rank_of_end(8, 8, 0.9 / 12870) == 0);
  CHECK(rank_of_end(8, 8, 1.1 / 12870) == 1);
  CHECK(rank_of_end(8, 8, 2.1 / 12870) == 2);
  CHECK(rank_of_end(8, 8, 3.9 / 12870) == 2);
  CHECK(rank_of_end(8, 8, 4.1 / 12870) == 3);
  CHECK(rank_of_end(8, 8, 12.1 / 12870) == 5);
  CHECK(rank_of_end(1, 3, 0.24) == 0);
  CHECK(rank_of_end(1, 3, 0.26) == 1);
  CHECK(rank_of_end(3, 1, 0.51) == 2);
  CHECK(rank_of_end(8, 8, 0.05) == rank_of_end(8, 8, 0.0501));
  CHECK(rank_of_end(0, 8, 0.5) == 0);
}

TEST_CASE("of many repeats the normal law gives the ranks that counting gives") {
  for (const double level : {0.05, 0.01, 0.001}) {
    const std::int64_t counted = rank_of_end(20, 20, level);
    const std::int64_t normal = rank_of_end(20, 21, level) * 20 / 21;
    CHECK(std::abs(counted - normal) <= 3);
  }
}

TEST_CASE("the least repeats are those of which one order is rare enough") {
  CHECK(least_repeats(0.01) == 5);  // C(10, 5) = 252
  CHECK(least_repeats(0.01 / 6) == 6);
  CHECK(least_repeats(0.01 / 9) == 6);   // 924
  CHECK(least_repeats(0.01 / 10) == 7);  // 3432
  for (const double level : {0.01, 0.001, 1e-5}) {
    const std::int64_t least = least_repeats(level);
    CHECK(rank_of_end(least, least, level) > 0);
    CHECK(rank_of_end(least - 1, least - 1, level) == 0);
  }
}

TEST_CASE("a shift is the median of all ratios, and its interval their order statistics") {
  const std::vector<double> base{1, 2, 4};
  const std::vector<double> fresh{8, 16, 32};
  // Ratios 2, 4, 4, 8, 8, 8, 16, 16, 32; C(6, 3) = 20 orders.
  const Shift shift = shift_of(base, fresh, 0.06);
  CHECK(shift.median == doctest::Approx(std::log(8)));
  CHECK(shift.low == doctest::Approx(std::log(2)));
  CHECK(shift.high == doctest::Approx(std::log(32)));
  const Shift narrower = shift_of(base, fresh, 0.11);
  CHECK(narrower.low == doctest::Approx(std::log(4)));
  CHECK(narrower.high == doctest::Approx(std::log(16)));
}

// In logarithms 1.03 is 0.0296, 1.06 is 0.0583 and 1.10 0.0953; repeats from 98 to 102 are 0.04
// apart.
TEST_CASE("judge: a change has to exceed the threshold by what repeats of one run are apart") {
  const std::vector<double> base{98, 99, 100, 100, 100, 100, 101, 102};
  const auto at = [&](double factor) {
    std::vector<double> times = base;
    for (double& time : times) {
      time *= factor;
    }
    return repeats_at(times);
  };
  CHECK(judge(at(1), at(1), threshold_of(0.03), 1).change == Change::kSame);
  CHECK(judge(at(1), at(1.06), threshold_of(0.03), 1).change == Change::kInconclusive);
  CHECK(judge(at(1), at(1.10), threshold_of(0.03), 1).change == Change::kSlower);
  CHECK(judge(at(1.10), at(1), threshold_of(0.03), 1).change == Change::kFaster);
  // Of a thousand rows the interval is as wide as all ratios: 1.10 does not clear it any more.
  CHECK(judge(at(1), at(1.10), threshold_of(0.03), 100).change == Change::kInconclusive);
  CHECK(judge(at(1), at(1.20), threshold_of(0.03), 100).change == Change::kSlower);
}

TEST_CASE("judge: what the machine moved is no change of the code") {
  CHECK(judge(eight_at(100), eight_at(110), threshold_of(0.03), 1).change == Change::kSlower);
  CHECK(judge(eight_at(100, 50), eight_at(110, 50), threshold_of(0.03), 1).change ==
        Change::kSlower);
  const ComparedRow moved = judge(eight_at(100, 50), eight_at(110, 55), threshold_of(0.03), 1);
  CHECK(moved.change == Change::kInconclusive);
  CHECK(says(moved, "the machine itself was 10.0 % faster or slower in one run"));
  CHECK(judge(eight_at(100, 50), eight_at(130, 55), threshold_of(0.03), 1).change ==
        Change::kSlower);
  // A machine that became quicker may hide that the code became slower.
  CHECK(judge(eight_at(100, 55), eight_at(100, 50), threshold_of(0.03), 1).change ==
        Change::kInconclusive);
  // Nor is what it gained an improvement.
  CHECK(judge(eight_at(110, 55), eight_at(100, 50), threshold_of(0.03), 1).change == Change::kSame);
}

TEST_CASE("judge: repeats that are no times get no verdict") {
  CHECK(says(judge(eight_at(0), eight_at(100), {}, 1), "a time is not a positive number"));
  CHECK(
      says(judge(eight_at(100), eight_at(std::nan("")), {}, 1), "a time is not a positive number"));
}

TEST_CASE("judge: without a repeat that was undisturbed there is no time to judge") {
  Repeats disturbed = repeats_at({});
  disturbed.disturbed = 8;
  disturbed.disturbance = "throttled: sw_power_cap";
  CHECK(says(judge(eight_at(100), disturbed, {}, 1),
             "base has 8 repeats; all 8 repeats of new were disturbed (throttled: sw_power_cap); 5 "
             "of each are needed to judge 1 row: a quieter machine would tell"));
  disturbed.times_us = {100};
  CHECK(says(judge(disturbed, eight_at(100), {}, 1),
             "base has 1 repeat, and 8 that were disturbed (throttled: sw_power_cap); new has 8 "
             "repeats; 5 of each are needed"));
}
