#include <doctest/doctest.h>

#include <cmath>

#include "compare/compare.h"
#include "compare/interval.h"
#include "core/error.h"
#include "support/golden.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

// 21 samples spread evenly over +-`spread` of the median.
Row timed(const char* case_id, double time_us, double spread = 0.01) {
  Row row;
  row.scenario = "decode";
  row.case_id = case_id;
  row.backend = "cpu";
  row.content = "0123456789abcdef";
  row.cache = "weights-cold";
  row.mode = "stream";
  row.status = Status::kPassed;
  row.levels = "exact+bounded+memory";
  for (int i = -10; i <= 10; ++i) {
    row.samples_us.push_back(time_us * (1 + spread * i / 10));
  }
  row.time_us = time_us;
  row.floor_us = time_us / 10;
  return row;
}

Row with_status(Row row, Status status) {
  row.status = status;
  row.samples_us.clear();
  row.time_us.reset();
  row.cache.clear();
  row.mode.clear();
  return row;
}

Results results(std::vector<Row> rows) { return {"r.jsonl", fixed_context(), std::move(rows), {}}; }

CompareReport report(std::vector<Row> base, std::vector<Row> fresh, CompareOptions options = {}) {
  return compare(results(std::move(base)), results(std::move(fresh)), options);
}

}  // namespace

TEST_CASE("the interval of a median comes from the order statistics of the binomial law") {
  Row row;
  for (int i = 1; i <= 8; ++i) {
    row.samples_us.push_back(9 - i);
  }
  // 2 * 0.5^8 = 0.8 % lie outside the whole range.
  std::optional<MedianInterval> interval = median_interval(row);
  REQUIRE(interval.has_value());
  CHECK(interval->median == 4.5);
  CHECK(interval->low == 1);
  CHECK(interval->high == 8);

  row.samples_us.pop_back();
  CHECK_FALSE(median_interval(row).has_value());

  row.samples_us.clear();
  for (int i = 1; i <= 30; ++i) {
    row.samples_us.push_back(i);
  }
  // P(B(30) <= 7) = 0.26 %, P(B(30) <= 8) = 0.81 %: the 8th from either end.
  interval = median_interval(row);
  CHECK(interval->low == 8);
  CHECK(interval->high == 23);
}

TEST_CASE("a row without samples is judged by its quartiles, one with too few by nothing") {
  Row base = timed("a", 100);
  base.samples_us.clear();
  base.samples = 100;
  base.time_q1_us = 99;
  base.time_q3_us = 101;
  const std::optional<MedianInterval> interval = median_interval(base);
  REQUIRE(interval.has_value());
  CHECK(interval->high - 100 == doctest::Approx(0.4787).epsilon(1e-3));
  CHECK(judge(base, timed("a", 106), {}).change == Change::kSlower);

  base.samples = 7;
  const ComparedRow result = judge(base, timed("a", 106), {});
  CHECK(result.change == Change::kInconclusive);
  CHECK(result.reason ==
        "base has 7 samples, 8 are needed: raise measure.max_samples or measure.max_time_ms, or "
        "run with --repeat 2");
}

TEST_CASE("a change beyond the threshold is a verdict, one within is the same") {
  CHECK(judge(timed("a", 100), timed("a", 104), {}).change == Change::kSlower);
  CHECK(judge(timed("a", 104), timed("a", 100), {}).change == Change::kFaster);
  CHECK(judge(timed("a", 100), timed("a", 102.9), {}).change == Change::kSame);
  CHECK(judge(timed("a", 102.9), timed("a", 100), {}).change == Change::kSame);
}

TEST_CASE("the given threshold beats the row's, and the row's beats the default") {
  Row base = timed("a", 100), fresh = timed("a", 104);
  base.max_regression = fresh.max_regression = 0.10;
  CHECK(judge(base, fresh, {}).change == Change::kSame);
  CHECK(judge(base, timed("a", 104), {}).change == Change::kSame);
  // A row of base without one has the default, which new cannot loosen.
  CHECK(judge(timed("a", 100), fresh, {}).change == Change::kSlower);
  fresh.max_regression = 0.01;
  CHECK(judge(timed("a", 102), fresh, {}).change == Change::kSlower);
  CompareOptions options;
  options.threshold = 0.02;
  options.threshold_given = true;
  CHECK(judge(timed("a", 100), fresh, options).change == Change::kSlower);
}

TEST_CASE("noise above the threshold leaves only a change beyond both") {
  const ComparedRow small = judge(timed("a", 100, 0.2), timed("a", 104, 0.2), {});
  CHECK(small.change == Change::kInconclusive);
  CHECK(small.reason.find("hides a change of 3.0 %: 34 times the samples (measure.max_samples and "
                          "measure.max_time_ms, or --repeat 34) would tell, or --threshold 18.") !=
        std::string::npos);
  CHECK(judge(timed("a", 100, 0.2), timed("a", 200, 0.2), {}).change == Change::kSlower);
  Row noisy = timed("a", 104);
  noisy.noise_us = 10;
  const ComparedRow apart = judge(timed("a", 100), noisy, {});
  CHECK(apart.change == Change::kInconclusive);
  CHECK(apart.reason.find("more than its samples explain: a quieter machine") != std::string::npos);
  Row noisy_base = timed("a", 100);
  noisy_base.noise_us = 10;
  CHECK(judge(noisy_base, timed("a", 104), {}).change == Change::kInconclusive);
  CHECK(judge(timed("a", 100), timed("a", 104), {}).change == Change::kSlower);
}

TEST_CASE("each change asks for its exit code, the worst wins, an improvement never fails") {
  const Row a = timed("a", 100);
  const Row b = timed("b", 100);
  CHECK(report({a, b}, {a, b}).exit == ExitCode::kPass);
  CHECK(report({a, b}, {timed("a", 50), b}).exit == ExitCode::kPass);
  CHECK(report({a}, {a, b}).exit == ExitCode::kPass);
  CHECK(report({a, b}, {timed("a", 150), b}).exit == ExitCode::kRegression);
  CHECK(report({a, b}, {a}).exit == ExitCode::kInconclusive);
  CHECK(report({a, b}, {timed("a", 100, 0.5), b}).exit == ExitCode::kInconclusive);
  CHECK(report({a, b}, {with_status(a, Status::kFailed), timed("b", 150)}).exit ==
        ExitCode::kWrongResult);
  CHECK(report({a, b}, {with_status(a, Status::kSkipped), b}).exit == ExitCode::kWrongResult);
}

TEST_CASE("a wrong result in new is broken, whatever base was") {
  const Row a = timed("a", 100);
  const Row failed = with_status(timed("b", 1), Status::kFailed);
  CHECK(report({a, failed}, {a, failed}).exit == ExitCode::kWrongResult);
  CHECK(report({a}, {a, failed}).exit == ExitCode::kWrongResult);
  CHECK(report({a, failed}, {a, timed("b", 1)}).exit == ExitCode::kPass);
  const Row skipped = with_status(timed("b", 1), Status::kSkipped);
  const CompareReport both = report({a, skipped}, {a, skipped});
  CHECK(both.exit == ExitCode::kPass);
  CHECK(both.rows[0].change == Change::kNotCompared);
}

TEST_CASE("nothing matched, or nothing timed, is never a pass") {
  CHECK(report({timed("a", 1)}, {timed("b", 1)}).exit == ExitCode::kInconclusive);
  CHECK(report({}, {}).exit == ExitCode::kInconclusive);
  const Row skipped = with_status(timed("a", 1), Status::kSkipped);
  const CompareReport nothing = report({skipped}, {skipped});
  CHECK(nothing.exit == ExitCode::kInconclusive);
  REQUIRE(nothing.warnings.size() == 1);
  CHECK(nothing.warnings[0] == "no row could be compared");
}

TEST_CASE("another cache mode is another row, unless the row was not timed") {
  Row hot = timed("a", 10);
  hot.cache = "hot";
  const CompareReport apart = report({timed("a", 100)}, {hot});
  REQUIRE(apart.rows.size() == 2);
  CHECK(apart.rows[0].change == Change::kMissing);
  CHECK(apart.rows[1].change == Change::kAdded);
  const CompareReport broken =
      report({timed("a", 100)}, {with_status(timed("a", 1), Status::kHung)});
  REQUIRE(broken.rows.size() == 1);
  CHECK(broken.rows[0].change == Change::kBroken);
}

TEST_CASE("repeats are pooled, and their spread is noise") {
  const CompareReport steady =
      report({timed("a", 100), timed("a", 100.2)}, {timed("a", 110), timed("a", 110.2)});
  REQUIRE(steady.rows.size() == 1);
  CHECK(steady.rows[0].change == Change::kSlower);
  CHECK(steady.rows[0].ratio == doctest::Approx(1.0998).epsilon(1e-3));
  const CompareReport apart =
      report({timed("a", 90), timed("a", 110)}, {timed("a", 104), timed("a", 104)});
  CHECK(apart.rows[0].change == Change::kInconclusive);
  // So many samples in the middle that the interval of the pooled median is short.
  const CompareReport middle =
      report({timed("a", 90), timed("a", 100), timed("a", 100), timed("a", 100), timed("a", 110)},
             {timed("a", 104)});
  CHECK(middle.rows[0].change == Change::kInconclusive);
}

TEST_CASE("another machine, driver or scenario warns, and is refused when strict") {
  const Results base = results({timed("a", 100)});
  Results fresh = base;
  fresh.context.driver = "7.0";
  fresh.context.commit = "fedcba9";
  fresh.context.scenario_hash["decode"] = "1";
  fresh.context.scenario_hash["other"] = "2";
  const CompareReport warned = compare(base, fresh, {});
  REQUIRE(warned.warnings.size() == 2);
  CHECK(warned.warnings[0] == "driver differs: '6.1.0' and '7.0'");
  CHECK(warned.warnings[1] == "scenario 'decode' has another content");
  CHECK(warned.exit == ExitCode::kPass);
  CompareOptions strict;
  strict.strict = true;
  CHECK_THROWS_WITH_AS(static_cast<void>(compare(base, fresh, strict)),
                       doctest::Contains("driver differs"), UsageError);
  CHECK_NOTHROW(static_cast<void>(compare(base, base, strict)));
}

TEST_CASE("a given threshold below the noise of every row is refused") {
  CompareOptions options;
  options.threshold = 0.0001;
  options.threshold_given = true;
  CHECK_THROWS_WITH_AS(static_cast<void>(report({timed("a", 100)}, {timed("a", 100)}, options)),
                       doctest::Contains("below the noise of every row"), UsageError);
  options.threshold = 0.00001;
  CHECK_THROWS_WITH_AS(static_cast<void>(report({timed("a", 100)}, {timed("a", 100)}, options)),
                       doctest::Contains("threshold of 0.001 % is below"), UsageError);
  // Whatever the medians are.
  CHECK_THROWS_AS(static_cast<void>(report({timed("a", 100)}, {timed("a", 200)}, options)),
                  UsageError);
  CHECK_NOTHROW(static_cast<void>(report({timed("a", 100), timed("b", 100, 0)},
                                         {timed("a", 200), timed("b", 100, 0)}, options)));
}

TEST_CASE("the threshold that a refusal names is not refused") {
  CompareOptions options;
  options.threshold_given = true;
  options.threshold = 0;
  std::string told;
  try {
    static_cast<void>(report({timed("a", 100)}, {timed("a", 101)}, options));
  } catch (const UsageError& error) {
    told = error.what();
  }
  const std::string marker = "tell a change of ";
  REQUIRE(told.find(marker) != std::string::npos);
  options.threshold = std::stod(told.substr(told.find(marker) + marker.size())) / 100;
  CHECK_NOTHROW(static_cast<void>(report({timed("a", 100)}, {timed("a", 101)}, options)));
}

TEST_CASE("a hidden change is never one of 0.0 %") {
  CompareOptions options;
  options.threshold = 0.0001;
  CHECK(report({timed("a", 100)}, {timed("a", 100)}, options)
            .rows.front()
            .reason.find("hides a change of 0.01 %") != std::string::npos);
  options.threshold = 0;
  CHECK(report({timed("a", 100)}, {timed("a", 100)}, options)
            .rows.front()
            .reason.find("hides every smaller change") != std::string::npos);
}

TEST_CASE("rows that were measured in doubt are counted, of each file by itself") {
  Row busy = timed("a", 100);
  busy.warning = "the machine was busy";
  const CompareReport one = report({timed("a", 100)}, {busy});
  REQUIRE(one.warnings.size() == 1);
  CHECK(one.warnings.front() == "rows measured in doubt: new: 1 row: the machine was busy [a cpu]");
  CHECK(report({timed("a", 100)}, {timed("a", 100)}).warnings.empty());
}

TEST_CASE("the comparison is written as its golden files hold, the worst first") {
  Row broken = with_status(timed("broken", 1), Status::kFailed);
  broken.message = "exact: 12 of 4096 wrong | token 3";
  const CompareReport all =
      report({timed("same", 100), timed("slower", 100), timed("faster", 100), timed("gone", 100),
              timed("noisy", 100, 0.2), timed("broken", 100)},
             {timed("same", 101), timed("slower", 108), timed("faster", 90), timed("new", 100),
              timed("noisy", 101, 0.2), broken});
  CHECK(all.exit == ExitCode::kWrongResult);
  check_golden("compare.txt", render_compare(all, false, {}));
  check_golden("compare_colour.txt",
               render_compare(all, false, {.width = 0, .colour = true, .columns = {}}));
  check_golden("compare.md", render_compare(all, true, {}));
  check_golden("compare_narrow.txt",
               render_compare(all, false, {.width = 60, .colour = false, .columns = {}}));
}

TEST_CASE("a threshold that is no number judges nothing and is refused") {
  CompareOptions options;
  options.threshold_given = true;
  for (const double threshold : {std::nan(""), HUGE_VAL, -0.01}) {
    options.threshold = threshold;
    CHECK_THROWS_WITH_AS(static_cast<void>(report({timed("a", 10)}, {timed("a", 20)}, options)),
                         doctest::Contains("judges nothing"), UsageError);
  }
  Row edited = timed("a", 20);
  edited.max_regression = -2;
  CHECK(report({timed("a", 10)}, {edited}).exit == ExitCode::kInconclusive);
}

TEST_CASE("a wrong repeat is not hidden by one that was skipped before it") {
  const Row skipped = with_status(timed("a", 10), Status::kSkipped);
  const Row failed = with_status(timed("a", 10), Status::kFailed);
  CHECK(report({skipped}, {skipped, failed}).exit == ExitCode::kWrongResult);
  CHECK(report({skipped}, {failed, skipped}).exit == ExitCode::kWrongResult);
}

TEST_CASE("figures that contradict each other get no verdict") {
  Row edited = timed("a", 10);
  edited.time_us = 5;
  const CompareReport found = report({timed("a", 10)}, {edited});
  CHECK(found.exit == ExitCode::kInconclusive);
  CHECK(found.rows.front().reason == "new: time_us is not the median of samples_us");

  Row broken = timed("a", 10);
  broken.samples_us[3] = std::nan("");
  CHECK(report({broken}, {timed("a", 10)}).rows.front().reason ==
        "base: samples_us holds what is no positive number");

  Row outside = timed("a", 10);
  outside.samples_us.clear();
  outside.samples = 30;
  outside.time_q1_us = 9.9;
  outside.time_q3_us = 10.1;
  CHECK(report({outside}, {outside}).rows.front().change == Change::kSame);
  Row faster = outside;
  faster.time_us = 5;
  CHECK(report({outside}, {faster}).rows.front().change == Change::kInconclusive);
}

TEST_CASE("strict refuses files that were read with warnings") {
  Results doubtful = results({timed("a", 10)});
  doubtful.warnings.emplace_back("r.jsonl:3: last line is cut in the middle; dropped");
  CHECK(compare(doubtful, results({timed("a", 10)}), {}).exit == ExitCode::kPass);
  CompareOptions strict;
  strict.strict = true;
  CHECK_THROWS_WITH_AS(static_cast<void>(compare(results({timed("a", 10)}), doubtful, strict)),
                       doctest::Contains("cut in the middle"), UsageError);
}

TEST_CASE(
    "strict refuses rows that do not tell their step, the state of the caches or how it was "
    "timed") {
  CompareOptions strict;
  strict.strict = true;
  const Row whole = timed("a", 10);
  CHECK(report({whole}, {whole}, strict).exit == ExitCode::kPass);
  for (const auto& [key, field] :
       {std::pair("content", &Row::content), {"cache", &Row::cache}, {"mode", &Row::mode}}) {
    Row untold = whole;
    (untold.*field).clear();
    const std::string sentence = std::string("r.jsonl: the row of a on cpu has no ") + key;
    CHECK(report({whole}, {untold}).exit == ExitCode::kPass);
    for (const auto& [base, fresh] : {std::pair(whole, untold), {untold, whole}}) {
      CHECK_THROWS_WITH_AS(static_cast<void>(report({base}, {fresh}, strict)),
                           doctest::Contains(sentence.c_str()), UsageError);
    }
  }
}

TEST_CASE("a new row that proves nothing is inconclusive, whatever base was") {
  const Row a = timed("a", 100);
  for (const Status fresh : {Status::kMistrusted, Status::kInvalid}) {
    const Row b = with_status(timed("b", 1), fresh);
    CHECK(report({a}, {a, b}).exit == ExitCode::kInconclusive);
    for (const Status base : {Status::kSkipped, Status::kMistrusted, Status::kInvalid}) {
      CHECK(report({a, with_status(b, base)}, {a, b}).exit == ExitCode::kInconclusive);
    }
    CHECK(report({a, timed("b", 1)}, {a, b}).exit == ExitCode::kWrongResult);
  }
}

TEST_CASE("the smaller max_regression of both counts, and none above 100 %") {
  const auto allowing = [](double time_us, double share) {
    Row row = timed("a", time_us);
    row.max_regression = share;
    return row;
  };
  CHECK(judge(allowing(100, 0.05), allowing(120, 0.9), {}).change == Change::kSlower);
  CHECK(judge(allowing(100, 0.9), allowing(120, 0.05), {}).change == Change::kSlower);
  CHECK(judge(allowing(100, 0.9), allowing(120, 0.9), {}).change == Change::kSame);
  const ComparedRow edited = judge(allowing(100, 0.05), allowing(101, 50), {});
  CHECK(edited.change == Change::kInconclusive);
  CHECK(edited.reason == "max_regression of 50 is no threshold");
}

TEST_CASE("another case of the same name is not compared, which is no pass") {
  const Row a = timed("a", 100);
  const Row b = timed("b", 100);
  Row other = b;
  SUBCASE("tokens") { other.tokens = 2; }
  SUBCASE("dtype") { other.dtype = "fp16"; }
  SUBCASE("rank") { other.rank = 8; }
  SUBCASE("seed") { other.seed = 7; }
  const CompareReport found = report({a, b}, {a, other});
  CHECK(found.exit == ExitCode::kInconclusive);
  CHECK(found.rows.front().change == Change::kNotCompared);
  CHECK(found.rows.front().reason.starts_with("another case of the same name: "));
}

TEST_CASE("a missing scenario_hash warns, and is refused when strict") {
  const Results base = results({timed("a", 100)});
  Results fresh = base;
  fresh.file = "new.jsonl";
  fresh.context.scenario_hash.clear();
  const CompareReport warned = compare(base, fresh, {});
  REQUIRE(warned.warnings.size() == 1);
  CHECK(warned.warnings[0] == "scenario 'decode' has no scenario_hash in new.jsonl");
  CompareOptions strict;
  strict.strict = true;
  CHECK_THROWS_AS(static_cast<void>(compare(base, fresh, strict)), UsageError);
}

TEST_CASE("a pass that nothing proved, or faster than the floor, gets no verdict") {
  Row unproved = timed("a", 100);
  unproved.levels.clear();
  CHECK(report({timed("a", 100)}, {unproved}).exit == ExitCode::kInconclusive);

  Row base = timed("a", 100);
  base.floor_us = 90;
  base.bound_by = "bytes";
  base.cache = "weights-cold";
  base.bytes = 100;
  base.weight_bytes = 80;
  CHECK(report({base}, {base}).exit == ExitCode::kPass);
  Row warm = base;
  warm.floor_us = 110;  // x and y may have been in a cache
  CHECK(report({base}, {warm}).exit == ExitCode::kPass);
  warm.floor_us = 130;
  CHECK(report({base}, {warm}).rows.front().reason ==
        "new: PASSED in a time below what the floor allows");
  warm.noise_us = 10;
  CHECK(report({base}, {warm}).rows.front().change != Change::kSlower);
  warm.floor_us = 110;
  warm.noise_us = 0;
  warm.bound_by = "flops";
  CHECK(report({base}, {warm}).exit == ExitCode::kInconclusive);
}
