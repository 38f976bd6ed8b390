#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compare/compare.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

// Samples whose median no chance moves, known to so many us.
Row row_of(double time_us, double noise_us = 0) {
  Row row = fixed_rows().front();
  row.samples_us.assign(20, time_us);
  row.time_us = time_us;
  row.noise_us = noise_us;
  return row;
}

// Twelve of twenty samples are 100 us: the median of as many more may be any of the others.
Row one_sided(double others_us) {
  Row row = row_of(100);
  std::fill_n(row.samples_us.begin(), 8, others_us);
  return row;
}

CompareOptions threshold_of(double threshold) {
  return {.threshold = threshold, .threshold_given = true};
}

bool says(const ComparedRow& row, const std::string& text) {
  return row.reason.find(text) != std::string::npos;
}

}  // namespace

// In logarithms: a threshold of 3 % is 0.0296, a noise of 4 % beyond it 0.04; 1.06 is 0.058
// and 1.08 0.077, and both together are 0.0696.
TEST_CASE("judge: noise above the threshold has to be cleared beyond it") {
  const Row base = row_of(100, 4);
  CHECK(judge(base, row_of(106), threshold_of(0.03)).change == Change::kInconclusive);
  CHECK(says(judge(base, row_of(106), threshold_of(0.03)), "noise of 4.1 % hides a change of 3.0"));
  CHECK(judge(base, row_of(108), threshold_of(0.03)).change == Change::kSlower);
  CHECK(judge(base, row_of(92), threshold_of(0.03)).change == Change::kFaster);
  // Noise below it takes nothing away.
  CHECK(judge(row_of(100, 2), row_of(104), threshold_of(0.03)).change == Change::kSlower);
}

TEST_CASE("judge: a median that may lie further on one side is known no better than there") {
  for (const double others : {90.0, 110.0}) {
    CAPTURE(others);
    CHECK(judge(row_of(100), one_sided(others), threshold_of(0.03)).change ==
          Change::kInconclusive);
    CHECK(judge(one_sided(others), row_of(100), threshold_of(0.03)).change ==
          Change::kInconclusive);
    CHECK(judge(row_of(100), one_sided(others), threshold_of(0.2)).change == Change::kSame);
  }
}

// Known to 0.0953 in logarithms; a threshold of 1 % is 0.00995, (0.0953 / 0.00995)^2 = 91.8.
TEST_CASE("judge: up to a hundred times the samples are advised, more are none") {
  CHECK(says(judge(row_of(100), one_sided(110), threshold_of(0.01)), "92 times the samples"));
  const ComparedRow more = judge(row_of(100), one_sided(110), threshold_of(0.009));
  CHECK(says(more, "a quieter machine would tell"));
  CHECK_FALSE(says(more, "times the samples"));
}

TEST_CASE("judge: a row may name a regression of up to 100 %, a given threshold asks it of none") {
  Row base = row_of(100);
  base.max_regression = 1;
  CHECK(judge(base, row_of(150), {}).change == Change::kSame);
  base.max_regression = 1.01;
  CHECK(says(judge(base, row_of(150), {}), "max_regression of 1.01 is no threshold"));
  CHECK(judge(base, row_of(150), threshold_of(0.03)).change == Change::kSlower);
}

TEST_CASE("judge: what would bring enough samples, and times that are none, are told") {
  Row few = row_of(100);
  few.samples_us.assign(4, 100);
  CHECK(says(judge(row_of(100), few, {}), "new has 4 samples, 8 are needed"));
  CHECK(says(judge(row_of(100), few, {}), "with --repeat 2"));
  CHECK(says(judge(row_of(0), row_of(100), {}), "a time is not a positive number"));
}
