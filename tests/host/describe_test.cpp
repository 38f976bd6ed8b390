#include "run/describe.h"

#include <doctest/doctest.h>

#include <cmath>
#include <utility>

#include "ops/auto_tuning.h"
#include "report/columns.h"
#include "report/json_row.h"
#include "report/sink.h"
#include "run/progress.h"
#include "run/run.h"

namespace lora_bench {
namespace {

Row timed_row(double time_us, double noise_us) {
  Row row;
  row.status = Status::kPassed;
  row.time_us = time_us;
  row.noise_us = noise_us;
  row.floor_us = 10;
  row.floor_ratio = time_us / 10;
  row.tokens = 64;
  row.tokens_per_s = 64 / (time_us * 1e-6);
  return row;
}

Thresholds limits(std::optional<double> max_time_us, std::optional<double> max_floor_ratio = {},
                  std::optional<double> min_tokens_per_s = {}) {
  Thresholds thresholds;
  thresholds.max_time_us = max_time_us;
  thresholds.max_floor_ratio = max_floor_ratio;
  thresholds.min_tokens_per_s = min_tokens_per_s;
  return thresholds;
}

TEST_CASE("a doubt takes the place of a pass alone, whatever else of anything") {
  const std::vector<Status> ends{Status::kFailed, Status::kSkipped, Status::kHung, Status::kError};
  for (const Status doubt : {Status::kMistrusted, Status::kInvalid}) {
    Row row;
    judge(row, Status::kPassed, "");
    judge(row, doubt, "doubt");
    CHECK(row.status == doubt);
    CHECK(row.message == "doubt");
    judge(row, Status::kInvalid, "another");
    CHECK(row.status == doubt);
    CHECK(row.message == "doubt");
    for (const Status end : ends) {
      judge(row, end, "end");
      judge(row, doubt, "doubt");
      CHECK(row.status == end);
      CHECK(row.message == "end");
    }
  }
}

TEST_CASE("launches that could be left out unseen are no pass") {
  for (const bool in_phase : {false, true}) {
    CAPTURE(in_phase);
    Measurement measurement;
    const Look vague{"", 100, 91};
    if (in_phase) {
      measurement.phases = Phases{};
      measurement.phases->replayed = {Look{"", 100, 0}, vague};
    } else {
      measurement.replayed = vague;
    }
    Row row;
    row.status = Status::kPassed;
    add_measurement(row, measurement);
    CHECK(row.status == Status::kMistrusted);
    CHECK(row.message.find("would pass in 91 of 100 elements") != std::string::npos);
    measurement.check_passed = false;
    add_measurement(row, measurement);
    CHECK(row.status == Status::kFailed);
  }
  Measurement telling;
  telling.replayed = {"", 100, 90};
  Row row;
  row.status = Status::kPassed;
  add_measurement(row, telling);
  CHECK(row.status == Status::kPassed);
}

TEST_CASE("a time over its threshold by more than the noise misses it") {
  Row row = timed_row(20, 0.5);
  add_thresholds(row, limits(19));
  CHECK(row.threshold_missed == "time_us is 20, allowed 19");
  CHECK(judge({row}) == ExitCode::kRegression);
}

TEST_CASE("a time over its threshold in a row that others disturbed is undecided") {
  Row row = timed_row(20, 0.5);
  row.stolen_share = 0.5;
  add_thresholds(row, limits(19));
  CHECK(row.threshold_missed.empty());
  CHECK(row.threshold_undecided ==
        "time_us is 20, allowed 19, noise 0.5; stolen: others had 50 % of the CPU time");
  CHECK(judge({row}) == ExitCode::kInconclusive);
  Row far = timed_row(40, 0.5);
  far.stolen_share = 0.5;
  add_thresholds(far, limits(19));
  CHECK(far.threshold_missed == "time_us is 40, allowed 19");
}

TEST_CASE("a time over its threshold by less than the noise is undecided") {
  Row row = timed_row(19.2, 0.5);
  add_thresholds(row, limits(19));
  CHECK(row.threshold_missed.empty());
  CHECK(row.threshold_undecided == "time_us is 19.2, allowed 19, noise 0.5");
  CHECK(judge({row}) == ExitCode::kInconclusive);
}

TEST_CASE("a stored row is judged as it was when it was measured, whatever its warnings say") {
  Row missed = timed_row(20, 0.5);
  add_thresholds(missed, limits(19));
  Row undecided = timed_row(19.2, 0.5);
  add_thresholds(undecided, limits(19));
  Row worded = timed_row(10, 0.5);
  warn(worded, "interrupted; threshold undecided");
  add_thresholds(worded, limits(19));
  for (const Row& row : {missed, undecided, worded}) {
    const Results stored =
        parse_results(to_json_line(Context{}) + "\n" + to_json_line(row) + "\n", "rows.jsonl");
    CHECK(judge(stored.rows) == judge({row}));
  }
  CHECK(judge({worded}) == ExitCode::kPass);
}

TEST_CASE("a measurement that was cut short says so in its row") {
  Measurement measurement;
  measurement.interrupted = true;
  Row row = timed_row(20, 0.5);
  add_measurement(row, measurement);
  CHECK(row.interrupted);
  CHECK(row.warning == "interrupted");
}

TEST_CASE("a tax is held to its share of the base, also one that is below its noise") {
  const auto judged = [](double time_us, double base_us, double tax_noise_us) {
    Row row = timed_row(time_us, 0.1);
    row.base_us = base_us;
    row.tax_noise_us = tax_noise_us;
    Thresholds thresholds;
    thresholds.max_tax_pct = 20;
    add_thresholds(row, thresholds);
    return row;
  };
  CHECK(judged(24, 20, 0.1).threshold_missed.empty());
  CHECK(judged(25, 20, 0.5).threshold_missed == "tax_pct is 25, allowed 20");
  const Row undecided = judged(25, 20, 2);
  CHECK(undecided.threshold_missed.empty());
  CHECK(undecided.threshold_undecided == "tax_pct is 25, allowed 20, noise 10");
  CHECK(judged(19, 20, 2).threshold_undecided.empty());
  Row without = timed_row(24, 0.1);  // no layer
  Thresholds thresholds;
  thresholds.max_tax_pct = 1;
  add_thresholds(without, thresholds);
  CHECK(without.threshold_missed.empty());
}

TEST_CASE("every kind of threshold can be missed and met") {
  Row met = timed_row(20, 0.1);
  add_thresholds(met, limits(25, 2.5, 1e6));
  CHECK(met.threshold_missed.empty());
  CHECK(judge({met}) == ExitCode::kPass);
  Row ratio = timed_row(20, 0.1);
  add_thresholds(ratio, limits({}, 1.5));
  CHECK(ratio.threshold_missed == "floor_ratio is 2, allowed 1.5");
  Row rate = timed_row(20, 0.1);
  add_thresholds(rate, limits({}, {}, 4e6));
  CHECK_FALSE(rate.threshold_missed.empty());
}

TEST_CASE("a run in which nothing passed is never a pass") {
  Row row;
  row.status = Status::kSkipped;
  CHECK(judge({row}) == ExitCode::kInconclusive);
  CHECK(judge({}) == ExitCode::kInconclusive);
}

TEST_CASE("the worst row decides the exit code") {
  Row passed = timed_row(20, 0.1);
  Row failed;
  failed.status = Status::kFailed;
  Row invalid;
  invalid.status = Status::kInvalid;
  CHECK(judge({passed, invalid}) == ExitCode::kInconclusive);
  CHECK(judge({invalid, failed, passed}) == ExitCode::kWrongResult);
}

TEST_CASE("a repro line quotes what a shell would take apart") {
  Case spec;
  spec.scenario_file = "my scenarios/it's.yaml";
  spec.id = "qkv-rank16";
  RunRequest request;
  request.overrides = {"skew={zipf: 1}"};
  CHECK(repro_command(spec, "cpu", request) ==
        "lora-bench run 'my scenarios/it'\\''s.yaml' --case qkv-rank16 --backends cpu "
        "--set 'skew={zipf: 1}'");
}

TEST_CASE("a repro line asks of the row what the run asked of it") {
  Case spec;
  spec.scenario_file = "smoke";
  spec.id = "a";
  RunRequest request;
  CHECK(repro_command(spec, "cpu", request) == "lora-bench run smoke --case a --backends cpu");
  request.relations = true;
  request.timing = false;
  request.max_cases = 7;
  request.thresholds = limits(0.1, 1.5, 2e6);
  request.thresholds.max_tax_pct = 30;
  CHECK(repro_command(spec, "cpu", request) ==
        "lora-bench run smoke --case a --backends cpu --threshold max_floor_ratio=1.5 "
        "--threshold max_time_us=0.1 --threshold min_tokens_per_s=2000000 --threshold "
        "max_tax_pct=30 --relations --no-time "
        "--max-cases 7");
}

TEST_CASE("what is said to be known before a run is what a case tells, and nothing else") {
  const auto scenario = [](const std::string& backend_free) {
    return parse_scenario(backend_free, "x.yaml", {.tuning = tuning_rules()}).cases.front();
  };
  const Case one = scenario(
      "name: one\ntags: [t]\nmodel: llama-3.1-8b\nlayers: qkv\nbatch: {decode: 3}\n"
      "adapters: {slots: 2, rank: 4, bias: true}\nintermediate: bf16\nno_adapter: 50%\n"
      "order: sorted\nplan.max_slots: 2\nseed: 7\nadd_inputs: false\ntuning.family: panel\nsweep: "
      "{product: {seed: "
      "[7]}}\n");
  const Row row = describe_case(one, step_of(one), "auto");
  const Case two = scenario(
      "name: two\nop: layer\nmodel: llama-3.1-8b\nlayers: o\n"
      "layer: {tp: 2, fully_sharded: true}\nbatch.decode: 3\n");
  const Row layer = describe_case(two, step_of(two), "cpu");
  for (const Column& column : columns()) {
    CAPTURE(column.key);
    const std::string untold = file_text(column.get(Row{}));
    CHECK(column.before_run ==
          (file_text(column.get(row)) != untold || file_text(column.get(layer)) != untold));
  }
}

TEST_CASE("progress tells no time before a row has ended") {
  CHECK(progress_text(0, 12, 3) == "1 of 12");
  CHECK(progress_text(2, 12, 4) == "3 of 12, 20.0 s left");
}

TEST_CASE("a line of progress is shorter than the terminal that would break it") {
  const std::string what =
      "layers decode16-qkv-llama-3.1-8b-tp4-fully_sharded-long-names-of-cases cpu";
  CHECK(progress_line("3 of 12", "smoke a cpu", 80) == "[3 of 12] smoke a cpu");
  CHECK(progress_line("3 of 12", what, 200) == "[3 of 12] " + what);
  CHECK(progress_line("3 of 12", what, 80).size() == 79);
  CHECK(progress_line("3 of 12", what, 80).ends_with(".."));
  CHECK(progress_line("3 of 12", what, 0).size() == 79);  // a terminal that does not tell
  CHECK(progress_line("3 of 12", "two\nlines", 80) == "[3 of 12] two lines");
}

TEST_CASE("who has nothing to do may launch nothing") {
  Row row = timed_row(0.001, 0);
  judge_floor(row, {.seconds = 1e-6, .bound_by = "launch", .stream_seconds = 1e-6});
  CHECK(row.status == Status::kPassed);
  CHECK_FALSE(row.floor_us);
  CHECK_FALSE(row.floor_ratio);
  Row launches = timed_row(2, 0);
  judge_floor(launches, {.seconds = 1e-6, .bound_by = "launch", .stream_seconds = 1e-6});
  CHECK(*launches.floor_us == doctest::Approx(1));
}

TEST_CASE("phases of a step without adapters may take no time") {
  Problem problem;
  problem.tokens = 1;
  problem.in_features = 64;
  problem.widths = {64};
  problem.slots = 1;
  problem.max_rank = 16;
  problem.rank = {16};
  problem.scale = {1};
  problem.plan = make_plan(std::vector<std::int32_t>{-1}, 1);
  Ceilings ceilings;
  ceilings.memory_curve = ceilings.cache_curve = {{1 << 16, 1e-6}, {1 << 30, 1e-2}};
  ceilings.copy_bytes_per_s = 1e11;
  ceilings.launch_seconds = 1e-6;
  ceilings.peaks = {{Dtype::kBf16, 1e12}};
  Row row = timed_row(0.003, 0);
  row.shrink_us = row.expand_us = row.gap_us = 0.001;
  add_floor(row, problem, MeasureSettings{}, ceilings);
  CHECK_MESSAGE(row.status == Status::kPassed, row.message);
}

TEST_CASE("a time below what the machine can do is INVALID, not a record") {
  Problem problem;
  problem.tokens = 1;
  problem.in_features = 1 << 20;
  problem.widths = {1 << 10};
  problem.slots = 1;
  problem.max_rank = 16;
  problem.rank = {16};
  problem.scale = {1};
  problem.plan = make_plan(std::vector<std::int32_t>{0}, 1);
  Ceilings ceilings;
  ceilings.memory_curve = {{1 << 16, 1e-6}, {1 << 30, 1e-2}};
  ceilings.cache_curve = {{1 << 16, 0.5e-6}, {1 << 30, 1e-2}};
  ceilings.cache_bytes = ceilings.kept_bytes = 1 << 26;
  ceilings.copy_bytes_per_s = 1e11;
  ceilings.launch_seconds = 1e-7;
  ceilings.peaks = {{Dtype::kBf16, 1e12}, {Dtype::kFp32, 1e12}};
  Row slow = timed_row(1e6, 0);
  add_floor(slow, problem, MeasureSettings{}, ceilings);
  CHECK(slow.status == Status::kPassed);
  CHECK(*slow.floor_us > 0);
  Row impossible = timed_row(0.001, 0);
  impossible.bytes = 1000;
  add_floor(impossible, problem, MeasureSettings{}, ceilings);
  CHECK(impossible.status == Status::kInvalid);
  CHECK(judge({impossible, slow}) == ExitCode::kInconclusive);
  for (const bool shrink : {true, false}) {
    Row part = timed_row(1e6, 0);
    part.shrink_us = shrink ? 0.001 : 5e5;
    part.expand_us = shrink ? 5e5 : 0.001;
    part.gap_us = 1e6 - *part.shrink_us - *part.expand_us;
    Row zeroing = part;
    add_floor(part, problem, MeasureSettings{}, ceilings);
    CHECK(part.status == Status::kInvalid);
    CHECK(part.message.starts_with(shrink ? "zero_us and shrink_us of 0.001 us"
                                          : "expand_us of 0.001 us"));
    // What was timed by itself and taken off a shrink is a part of it, and none of an expand.
    zeroing.zero_us = 2e5;
    zeroing.gap_us = *zeroing.gap_us - 2e5;
    add_floor(zeroing, problem, MeasureSettings{}, ceilings);
    CHECK((zeroing.status == Status::kPassed) == shrink);
  }
  // A phase is held to its own floor, with the noise.
  Problem shrink = problem;
  shrink.op = Op::kShrink;
  const Floor floor = floor_of(count_work(shrink), shrink, CacheMode::kWeightsCold, ceilings);
  const double floor_us = floor.seconds * 1e6;
  REQUIRE(floor.seconds < 0.99 * floor.stream_seconds);
  for (const auto& [us, noise_us] :
       {std::pair{1.005 * floor_us, 0.0}, std::pair{0.9 * floor_us, 0.2 * floor_us}}) {
    Row honest = timed_row(1e6, noise_us);
    honest.shrink_us = us;
    add_floor(honest, problem, MeasureSettings{}, ceilings);
    CHECK(honest.status == Status::kPassed);
  }
  for (const double sample : {0.0, -3.0, std::nan(""), HUGE_VAL}) {
    Row backwards = timed_row(1e6, 0);
    backwards.samples_us = {1e6, sample, 1e6, 1e6, 1e6};
    add_floor(backwards, problem, MeasureSettings{}, ceilings);
    CHECK(backwards.status == Status::kInvalid);
    Row still = timed_row(sample, 0);
    add_floor(still, problem, MeasureSettings{}, ceilings);
    CHECK(still.status == Status::kInvalid);
  }
}

}  // namespace
}  // namespace lora_bench
