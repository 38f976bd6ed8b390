#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "compare/compare.h"
#include "core/error.h"
#include "report/doubts.h"
#include "support/golden.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

using Rows = std::vector<Row>;

// Eight repeats, evenly over +-`spread` of the time.
Rows timed(const char* case_id, double time_us, double spread = 0.001) {
  Row row;
  row.id.scenario = "decode";
  row.id.case_id = case_id;
  row.id.backend = "cpu";
  row.step.content = "0123456789abcdef";
  row.step.cache = "weights-cold";
  row.step.mode = "stream";
  row.status = Status::kPassed;
  row.proof.levels = "exact+bounded+memory";
  row.time.samples_us.assign(21, time_us);
  row.time.us = time_us;
  row.floor.us = time_us / 10;
  return repeats_like(row, spread);
}

Rows with_status(const Rows& rows, Status status) {
  Row row = rows.front();
  row.status = status;
  row.time.samples_us.clear();
  row.time.us.reset();
  row.step.cache.clear();
  row.step.mode.clear();
  return {row};
}

Rows together(const std::vector<Rows>& parts) {
  Rows all;
  for (const Rows& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

template <class Edit>
Rows edited(Rows rows, const Edit& edit) {
  std::for_each(rows.begin(), rows.end(), edit);
  return rows;
}

Results results(Rows rows) { return {"r.jsonl", fixed_context(), std::move(rows), {}}; }

CompareReport report(const std::vector<Rows>& base, const std::vector<Rows>& fresh,
                     CompareOptions options = {}) {
  return compare(results(together(base)), results(together(fresh)), options);
}

ComparedRow judged(const Rows& base, const Rows& fresh, CompareOptions options = {}) {
  const CompareReport found = report({base}, {fresh}, options);
  REQUIRE(found.rows.size() == 1);
  return found.rows.front();
}

CompareOptions threshold_of(double threshold) {
  return {.threshold = threshold, .threshold_given = true};
}

}  // namespace

TEST_CASE("a change beyond the threshold is a verdict, one within is the same") {
  CHECK(judged(timed("a", 100), timed("a", 104)).change == Change::kSlower);
  CHECK(judged(timed("a", 104), timed("a", 100)).change == Change::kFaster);
  CHECK(judged(timed("a", 100), timed("a", 102.9)).change == Change::kSame);
  CHECK(judged(timed("a", 102.9), timed("a", 100)).change == Change::kSame);
}

TEST_CASE("the given threshold beats the row's, and the row's beats the default") {
  const auto allowing = [](double time_us, double share) {
    return edited(timed("a", time_us), [&](Row& row) { row.limits.max_regression = share; });
  };
  CHECK(judged(allowing(100, 0.10), allowing(104, 0.10)).change == Change::kSame);
  CHECK(judged(allowing(100, 0.10), timed("a", 104)).change == Change::kSame);
  // A row of base without one has the default, which new cannot loosen.
  CHECK(judged(timed("a", 100), allowing(104, 0.10)).change == Change::kSlower);
  CHECK(judged(timed("a", 102), allowing(104, 0.01)).change == Change::kSlower);
  CHECK(judged(timed("a", 100), allowing(104, 0.10), threshold_of(0.02)).change == Change::kSlower);
}

TEST_CASE("noise above the threshold leaves only a change beyond both") {
  const ComparedRow small = judged(timed("a", 100, 0.2), timed("a", 104, 0.2));
  CHECK(small.change == Change::kInconclusive);
  CHECK(small.reason.find("hides a change of 3.0 %: more repeats or a quieter machine would tell, "
                          "or --threshold ") != std::string::npos);
  CHECK(judged(timed("a", 100, 0.2), timed("a", 300, 0.2)).change == Change::kSlower);
  CHECK(judged(timed("a", 300, 0.2), timed("a", 100, 0.2)).change == Change::kFaster);
}

TEST_CASE("each change asks for its exit code, the worst wins, an improvement never fails") {
  const Rows a = timed("a", 100);
  const Rows b = timed("b", 100);
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
  const Rows a = timed("a", 100);
  const Rows failed = with_status(timed("b", 1), Status::kFailed);
  CHECK(report({a, failed}, {a, failed}).exit == ExitCode::kWrongResult);
  CHECK(report({a}, {a, failed}).exit == ExitCode::kWrongResult);
  CHECK(report({a, failed}, {a, timed("b", 1)}).exit == ExitCode::kPass);
  const Rows skipped = with_status(timed("b", 1), Status::kSkipped);
  const CompareReport both = report({a, skipped}, {a, skipped});
  CHECK(both.exit == ExitCode::kPass);
  CHECK(both.rows[0].change == Change::kNotCompared);
}

TEST_CASE("nothing matched, or nothing timed, is never a pass") {
  CHECK(report({timed("a", 1)}, {timed("b", 1)}).exit == ExitCode::kInconclusive);
  CHECK(report({}, {}).exit == ExitCode::kInconclusive);
  const Rows skipped = with_status(timed("a", 1), Status::kSkipped);
  const CompareReport nothing = report({skipped}, {skipped});
  CHECK(nothing.exit == ExitCode::kInconclusive);
  REQUIRE(nothing.warnings.size() == 1);
  CHECK(nothing.warnings[0] == "no row could be compared");
}

TEST_CASE("another cache mode is another row, unless the row was not timed") {
  const Rows hot = edited(timed("a", 10), [](Row& row) { row.step.cache = "hot"; });
  const CompareReport apart = report({timed("a", 100)}, {hot});
  REQUIRE(apart.rows.size() == 2);
  CHECK(apart.rows[0].change == Change::kMissing);
  CHECK(apart.rows[1].change == Change::kAdded);
  const CompareReport broken =
      report({timed("a", 100)}, {with_status(timed("a", 1), Status::kHung)});
  REQUIRE(broken.rows.size() == 1);
  CHECK(broken.rows[0].change == Change::kBroken);
}

TEST_CASE("repeats that were disturbed are left out, and too few are no verdict") {
  Rows busy = timed("a", 104);
  CHECK(judged(timed("a", 100), busy).change == Change::kSlower);
  for (std::size_t i = 0; i < 4; ++i) {
    busy[i].conditions.stolen_share = 0.25;
  }
  CHECK(judged(timed("a", 100), busy).change == Change::kSlower);  // 8 against 4: 1 of 495 orders
  busy[4].conditions.stolen_share = 0.25;
  busy[5].conditions.throttle = "sw_power_cap";
  for (const ComparedRow& row : {judged(timed("a", 100), busy), judged(busy, timed("a", 100))}) {
    CHECK(row.change == Change::kInconclusive);
    CHECK(row.reason.find("5 of each are needed to judge 1 row: ") != std::string::npos);
    CHECK(row.reason.find("were disturbed (stolen: others had 25 % of the CPU time)") !=
          std::string::npos);
  }
  // What little others take does not count.
  Rows quiet =
      edited(timed("a", 104), [](Row& row) { row.conditions.stolen_share = kMostStolenShare; });
  CHECK(judged(timed("a", 100), quiet).change == Change::kSlower);
}

TEST_CASE("the load of the machine counts where the kernel does not tell who had the CPU") {
  const Rows loaded = edited(timed("a", 104), [](Row& row) { row.conditions.load = 1.6; });
  CHECK(judged(timed("a", 100), loaded).change == Change::kInconclusive);
  const Rows told = edited(loaded, [](Row& row) { row.conditions.stolen_share = 0; });
  CHECK(judged(timed("a", 100), told).change == Change::kSlower);
}

TEST_CASE("one repeat is never enough, and what is needed grows with the rows") {
  const Rows once{timed("a", 100).front()};
  const ComparedRow row = judged(once, {timed("a", 200).front()});
  CHECK(row.change == Change::kInconclusive);
  CHECK(row.reason ==
        "base has 1 repeat, new 1; 5 of each are needed to judge 1 row: run both with --repeat 5");
  std::vector<Rows> many;
  for (const char* id : {"a", "b", "c", "d", "e", "f"}) {
    many.push_back({timed(id, 100).front()});
  }
  CHECK(report(many, many).rows.front().reason.find("6 of each are needed to judge 6 rows") !=
        std::string::npos);
  // A table says it once for all of them.
  const std::string text = render_compare(report(many, many), false, {});
  const std::string told = "these 6 rows: base has 1 repeat, new 1; 6 of each are needed";
  REQUIRE(text.find(told) != std::string::npos);
  CHECK(text.find("are needed", text.find(told) + told.size()) == std::string::npos);
}

TEST_CASE("a row of which one repeat was not timed is missing a time") {
  Rows part = timed("a", 100);
  part.back().time.us.reset();
  part.back().time.samples_us.clear();
  CHECK(judged(timed("a", 100), part).change == Change::kMissing);
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

TEST_CASE("a given threshold below the noise of every row is inconclusive, and told") {
  const CompareReport found = report({timed("a", 100)}, {timed("a", 100)}, threshold_of(0.00001));
  CHECK(found.exit == ExitCode::kInconclusive);
  REQUIRE(found.warnings.size() == 2);
  CHECK(found.warnings.front().starts_with(
      "threshold of 0.001 % is below the noise of every row; the quietest can be told from "));
  CHECK(found.warnings.back() == "no row could be compared");
  // One row that can be judged is enough to say nothing.
  CHECK(report({timed("a", 100), timed("b", 100, 0)}, {timed("a", 100), timed("b", 100, 0)},
               threshold_of(0.00001))
            .warnings.empty());
}

TEST_CASE("the threshold that an inconclusive row names can be judged") {
  const Rows base = timed("a", 100, 0.05);
  const ComparedRow hidden = judged(base, timed("a", 101, 0.05), threshold_of(0.01));
  REQUIRE(hidden.least_threshold.has_value());
  CHECK(judged(base, timed("a", 101, 0.05), threshold_of(*hidden.least_threshold)).change ==
        Change::kSame);
  CHECK(
      judged(base, timed("a", 101, 0.05), threshold_of(*hidden.least_threshold - 0.0015)).change ==
      Change::kInconclusive);
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
  Rows busy = timed("a", 100);
  busy.front().warning = "the machine was busy";
  const CompareReport one = report({timed("a", 100)}, {busy});
  REQUIRE(one.warnings.size() == 1);
  CHECK(one.warnings.front() == "rows measured in doubt: new: 1 row: the machine was busy [a cpu]");
  CHECK(report({timed("a", 100)}, {timed("a", 100)}).warnings.empty());
}

TEST_CASE("the comparison is written as its golden files hold, the worst first") {
  Rows broken = with_status(timed("broken", 1), Status::kFailed);
  broken.front().message = "exact: 12 of 4096 wrong | token 3";
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
  const Rows below = edited(timed("a", 20), [](Row& row) { row.limits.max_regression = -2; });
  CHECK(report({timed("a", 10)}, {below}).exit == ExitCode::kInconclusive);
}

TEST_CASE("a wrong repeat is not hidden by one that was skipped before it") {
  const Rows skipped = with_status(timed("a", 10), Status::kSkipped);
  const Rows failed = with_status(timed("a", 10), Status::kFailed);
  CHECK(report({skipped}, {skipped, failed}).exit == ExitCode::kWrongResult);
  CHECK(report({skipped}, {failed, skipped}).exit == ExitCode::kWrongResult);
}

TEST_CASE("figures that contradict each other get no verdict") {
  Rows forged = timed("a", 10);
  forged[5].time.us = 5;
  const CompareReport found = report({timed("a", 10)}, {forged});
  CHECK(found.exit == ExitCode::kInconclusive);
  CHECK(found.rows.front().reason == "new: time_us is not the median of samples_us");

  Rows broken = timed("a", 10);
  broken.front().time.samples_us[3] = std::nan("");
  CHECK(report({broken}, {timed("a", 10)}).rows.front().reason ==
        "base: samples_us holds what is no positive number");
}

TEST_CASE("rows stored without samples are judged by their times") {
  const auto bare = [](double time_us) {
    return edited(timed("a", time_us), [](Row& row) {
      row.time.samples_us.clear();
      row.time.samples = 30;
    });
  };
  CHECK(judged(bare(10), bare(10)).change == Change::kSame);
  CHECK(judged(bare(10), bare(11)).change == Change::kSlower);
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
  const Rows whole = timed("a", 10);
  CHECK(report({whole}, {whole}, strict).exit == ExitCode::kPass);
  for (const auto& [key, field] : {std::pair("content", &Row::Step::content),
                                   {"cache", &Row::Step::cache},
                                   {"mode", &Row::Step::mode}}) {
    const Rows untold = edited(whole, [field = field](Row& row) { (row.step.*field).clear(); });
    const std::string sentence = std::string("r.jsonl: the row of a on cpu has no ") + key;
    CHECK(report({whole}, {untold}).exit == ExitCode::kPass);
    for (const auto& [base, fresh] : {std::pair(whole, untold), {untold, whole}}) {
      CHECK_THROWS_WITH_AS(static_cast<void>(report({base}, {fresh}, strict)),
                           doctest::Contains(sentence.c_str()), UsageError);
    }
  }
}

TEST_CASE("a new row that proves nothing is inconclusive, whatever base was") {
  const Rows a = timed("a", 100);
  for (const Status fresh : {Status::kMistrusted, Status::kInvalid}) {
    const Rows b = with_status(timed("b", 1), fresh);
    CHECK(report({a}, {a, b}).exit == ExitCode::kInconclusive);
    for (const Status base : {Status::kSkipped, Status::kMistrusted, Status::kInvalid}) {
      CHECK(report({a, with_status(b, base)}, {a, b}).exit == ExitCode::kInconclusive);
    }
  }
}

TEST_CASE("a proof that is lost is broken; a time that is not to be believed is inconclusive") {
  const Rows a = timed("a", 100);
  const auto after = [&](Status fresh) {
    return report({a, timed("b", 1)}, {a, with_status(timed("b", 1), fresh)}).exit;
  };
  CHECK(after(Status::kMistrusted) == ExitCode::kWrongResult);
  CHECK(after(Status::kSkipped) == ExitCode::kWrongResult);
  CHECK(after(Status::kFailed) == ExitCode::kWrongResult);
  CHECK(after(Status::kInvalid) == ExitCode::kInconclusive);
}

TEST_CASE("the smaller max_regression of both counts, and none above 100 %") {
  const auto allowing = [](double time_us, double share) {
    return edited(timed("a", time_us), [&](Row& row) { row.limits.max_regression = share; });
  };
  CHECK(judged(allowing(100, 0.05), allowing(120, 0.9)).change == Change::kSlower);
  CHECK(judged(allowing(100, 0.9), allowing(120, 0.05)).change == Change::kSlower);
  CHECK(judged(allowing(100, 0.9), allowing(120, 0.9)).change == Change::kSame);
  CHECK(judged(allowing(100, 1), allowing(150, 1)).change == Change::kSame);
  const ComparedRow above = judged(allowing(100, 0.05), allowing(101, 50));
  CHECK(above.change == Change::kInconclusive);
  CHECK(above.reason == "max_regression of 50 is no threshold");
  CHECK(judged(allowing(100, 0.05), allowing(150, 50), threshold_of(0.03)).change ==
        Change::kSlower);
}

TEST_CASE("another case of the same name is not compared, which is no pass") {
  const Rows a = timed("a", 100);
  const Rows b = timed("b", 100);
  Rows other;
  SUBCASE("tokens") {
    other = edited(b, [](Row& row) { row.step.tokens = 2; });
  }
  SUBCASE("dtype") {
    other = edited(b, [](Row& row) { row.step.dtype = "fp16"; });
  }
  SUBCASE("rank") {
    other = edited(b, [](Row& row) { row.step.rank = 8; });
  }
  SUBCASE("seed") {
    other = edited(b, [](Row& row) { row.step.seed = 7; });
  }
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
  const Rows unproved = edited(timed("a", 100), [](Row& row) { row.proof.levels.clear(); });
  CHECK(report({timed("a", 100)}, {unproved}).exit == ExitCode::kInconclusive);

  const Rows base = edited(timed("a", 100, 0), [](Row& row) {
    row.floor.us = 90;
    row.step.bytes = 100;
    row.step.weight_bytes = 80;
  });
  CHECK(report({base}, {base}).exit == ExitCode::kPass);
  const std::string below = "new: PASSED in a time below what the floor allows";
  const auto with = [&](std::optional<double> Row::Floor::*figure, double us) {
    return report({base}, {edited(base, [&](Row& row) { row.floor.*figure = us; })});
  };
  CHECK(with(&Row::Floor::us, 110).rows.front().reason == below);
  CHECK(with(&Row::Floor::stream_us, 110).exit == ExitCode::kPass);       // x and y lay in a cache
  CHECK(with(&Row::Floor::stream_us, 130).rows.front().reason == below);  // 80 % of it are weights
}
