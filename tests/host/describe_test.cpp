#include "run/describe.h"

#include <doctest/doctest.h>

#include <cmath>
#include <utility>

#include "measure/metadata_time.h"
#include "ops/auto_tuning.h"
#include "report/columns.h"
#include "report/json_row.h"
#include "report/sink.h"
#include "run/progress.h"
#include "run/run.h"
#include "support/outcomes.h"

namespace lora_bench {
namespace {

Row timed_row(double time_us, double noise_us) {
  Row row;
  row.status = Status::kPassed;
  row.time.us = time_us;
  row.time.noise_us = noise_us;
  row.floor.us = 10;
  row.floor.ratio = time_us / 10;
  row.step.tokens = 64;
  row.rates.tokens_per_s = 64 / (time_us * 1e-6);
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

Row held(Row row, const Thresholds& thresholds) {
  row.limits = held_to(row, thresholds);
  return row;
}

// One token with the adapter, or without one where it is -1.
Problem one_token(std::int32_t adapter, std::int64_t in_features, std::int64_t width) {
  Problem problem;
  problem.tokens = 1;
  problem.in_features = in_features;
  problem.widths = {width};
  problem.slots = 1;
  problem.max_rank = 16;
  problem.rank = {16};
  problem.scale = {1};
  problem.plan = make_plan(std::vector<std::int32_t>{adapter}, 1);
  return problem;
}

Row row_of_time(const Measurement& measurement) {
  return test::row_of(test::step_of(one_token(0, 64, 64)), test::proved_and(measurement));
}

Measurement in_phases(Measurement measurement, double zero_us, double shrink_us, double expand_us) {
  measurement.phases = Phases{zero_us * 1e-6, shrink_us * 1e-6, expand_us * 1e-6, {}, {}, {}};
  return measurement;
}

TEST_CASE("a doubt takes the place of a pass alone, whatever else of anything") {
  const std::vector<Status> ends{Status::kFailed, Status::kSkipped, Status::kHung, Status::kError};
  for (const Status doubt : {Status::kMistrusted, Status::kInvalid}) {
    std::vector<Finding> findings{{Status::kPassed, ""}, {doubt, "doubt"}};
    CHECK(prevailing(findings).status == doubt);
    CHECK(prevailing(findings).message == "doubt");
    findings.push_back({Status::kInvalid, "another"});
    CHECK(prevailing(findings).status == doubt);
    CHECK(prevailing(findings).message == "doubt");
    for (const Status end : ends) {
      findings.push_back({end, "end"});
      findings.push_back({doubt, "doubt"});
      CHECK(prevailing(findings).status == end);
      CHECK(prevailing(findings).message == "end");
    }
    CHECK(prevailing({{doubt, "of the proof"}, {doubt, "after it"}}).message == "of the proof");
  }
  CHECK(prevailing({}).status == Status::kError);
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
    const Row row = row_of_time(measurement);
    CHECK(row.status == Status::kMistrusted);
    CHECK(row.message.find("would pass in 91 of 100 elements") != std::string::npos);
    measurement.check_passed = false;
    CHECK(row_of_time(measurement).status == Status::kFailed);
  }
  Measurement telling;
  telling.replayed = {"", 100, 90};
  CHECK(row_of_time(telling).status == Status::kPassed);
}

TEST_CASE("a time that holds only while x stays as it is is no pass") {
  for (const bool in_phase : {false, true}) {
    CAPTURE(in_phase);
    Measurement measurement;
    const NewInputs doubtful{.known_s = 11e-6, .new_s = 14e-6, .launch_s = 10e-6};
    if (in_phase) {
      measurement.phases = Phases{};
      measurement.phases->new_inputs = {NewInputs{}, doubtful};
    } else {
      measurement.new_inputs = doubtful;
    }
    const Row row = row_of_time(measurement);
    CHECK(row.status == Status::kMistrusted);
    CHECK(row.message.find("takes 3.00 us longer than the 10.00 us") != std::string::npos);
  }
  Measurement usual;
  usual.new_inputs = {.known_s = 11e-6, .new_s = 13e-6, .launch_s = 10e-6};
  CHECK(row_of_time(usual).status == Status::kPassed);
}

TEST_CASE("a time over its threshold by more than the noise misses it") {
  const Row row = held(timed_row(20, 0.5), limits(19));
  CHECK(row.limits.missed == "time_us is 20, allowed 19");
  CHECK(judge({row}) == ExitCode::kRegression);
}

TEST_CASE("a time over its threshold in a row that others disturbed is undecided") {
  Row row = timed_row(20, 0.5);
  row.conditions.stolen_share = 0.5;
  row = held(row, limits(19));
  CHECK(row.limits.missed.empty());
  CHECK(row.limits.undecided ==
        "time_us is 20, allowed 19, noise 0.5; stolen: others had 50 % of the CPU time");
  CHECK(judge({row}) == ExitCode::kInconclusive);
  Row far = timed_row(40, 0.5);
  far.conditions.stolen_share = 0.5;
  CHECK(held(far, limits(19)).limits.missed == "time_us is 40, allowed 19");
}

TEST_CASE("a time over its threshold by less than the noise is undecided") {
  const Row row = held(timed_row(19.2, 0.5), limits(19));
  CHECK(row.limits.missed.empty());
  CHECK(row.limits.undecided == "time_us is 19.2, allowed 19, noise 0.5");
  CHECK(judge({row}) == ExitCode::kInconclusive);
}

TEST_CASE("a stored row is judged as it was when it was measured, whatever its warnings say") {
  const Row missed = held(timed_row(20, 0.5), limits(19));
  const Row undecided = held(timed_row(19.2, 0.5), limits(19));
  Row worded = held(timed_row(10, 0.5), limits(19));
  worded.warning = "interrupted; threshold undecided";
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
  const Row row = row_of_time(measurement);
  CHECK(row.interrupted);
  CHECK(row.warning == "interrupted");
}

TEST_CASE("a tax is held to its share of the base, also one that is below its noise") {
  const auto judged = [](double time_us, double base_us, double tax_noise_us) {
    Row row = timed_row(time_us, 0.1);
    row.tax.base_us = base_us;
    row.tax.noise_us = tax_noise_us;
    Thresholds thresholds;
    thresholds.max_tax_pct = 20;
    return held_to(row, thresholds);
  };
  CHECK(judged(24, 20, 0.1).missed.empty());
  CHECK(judged(25, 20, 0.5).missed == "tax_pct is 25, allowed 20");
  const Row::Limits undecided = judged(25, 20, 2);
  CHECK(undecided.missed.empty());
  CHECK(undecided.undecided == "tax_pct is 25, allowed 20, noise 10");
  CHECK(judged(19, 20, 2).undecided.empty());
  const Row without = timed_row(24, 0.1);  // no layer
  Thresholds thresholds;
  thresholds.max_tax_pct = 1;
  CHECK(held_to(without, thresholds).missed.empty());
}

TEST_CASE("every kind of threshold can be missed and met") {
  const Row met = held(timed_row(20, 0.1), limits(25, 2.5, 1e6));
  CHECK(met.limits.missed.empty());
  CHECK(judge({met}) == ExitCode::kPass);
  CHECK(held_to(timed_row(20, 0.1), limits({}, 1.5)).missed == "floor_ratio is 2, allowed 1.5");
  CHECK_FALSE(held_to(timed_row(20, 0.1), limits({}, {}, 4e6)).missed.empty());
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
      "order: sorted\nplan.max_slots: 2\nseed: 7\nadd_inputs: false\nidle_rows: "
      "zeroed\ntuning.family: panel\nweights.dtype: e4m3\nactivations.dtype: e4m3\n"
      "sweep: {product: {seed: [7]}}\n");
  const Row row = describe_case(one, step_of(one), "auto");
  const Case two = scenario(
      "name: two\nop: layer\nmodel: llama-3.1-8b\nlayers: o\n"
      "layer: {tp: 2, fully_sharded: true}\nbatch.decode: 3\n");
  const Row layer = describe_case(two, step_of(two), "cpu");
  const Case three = scenario("name: three\nop: metadata\nform: chunked\nbatch.decode: 3\n");
  const Row metadata = describe_case(three, step_of(three), "cpu");
  const Case four = scenario(
      "name: four\nbatch.decode: 3\nexperts: {count: 4, top_k: 2}\nadapters.rank: 4\n"
      "layer: {in: 8, out: [8]}\n");
  const Row experts = describe_case(four, step_of(four), "cpu");
  for (const Column& column : columns()) {
    CAPTURE(column.key);
    const std::string untold = file_text(column.get(Row{}));
    CHECK(column.before_run ==
          (file_text(column.get(row)) != untold || file_text(column.get(layer)) != untold ||
           file_text(column.get(metadata)) != untold || file_text(column.get(experts)) != untold));
  }
  CHECK(metadata.step.op == "metadata");
  CHECK(metadata.step.form == "chunked");
  CHECK(metadata.step.dtype == "");
  CHECK(metadata.step.out_features == "");
  CHECK(metadata.step.bytes == count_metadata_work(*step_of(three).metadata).bytes);
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

Ceilings slow_ceilings() {
  Ceilings ceilings;
  ceilings.memory_curve = ceilings.cache_curve = {{1 << 16, 1e-6}, {1 << 30, 1e-2}};
  ceilings.copy_bytes_per_s = 1e11;
  ceilings.launch_seconds = 1e-6;
  ceilings.peaks = {{Dtype::kBf16, 1e12}};
  return ceilings;
}

Row held_to_ceilings(const Problem& problem, const Measurement& measurement,
                     const Ceilings& ceilings) {
  Outcome outcome = test::proved_and(measurement);
  outcome.ceilings = ceilings;
  return test::row_of(test::step_of(problem), outcome);
}

TEST_CASE("who has nothing to do may launch nothing") {
  const Problem idle = one_token(-1, 64, 64);
  const Row row = held_to_ceilings(idle, test::timed(0.001), slow_ceilings());
  CHECK_MESSAGE(row.status == Status::kPassed, row.message);
  CHECK_FALSE(row.floor.us);
  CHECK_FALSE(row.floor.ratio);
  CHECK(row.floor.bound_by.empty());
  const Row launches = held_to_ceilings(idle, test::timed(2), slow_ceilings());
  CHECK(*launches.floor.us == doctest::Approx(1));
}

TEST_CASE("phases of a step without adapters may take no time") {
  const Row row = held_to_ceilings(one_token(-1, 64, 64),
                                   in_phases(test::timed(0.003), 0, 0.001, 0.001), slow_ceilings());
  CHECK_MESSAGE(row.status == Status::kPassed, row.message);
}

TEST_CASE("a time below what the machine can do is INVALID, not a record") {
  const Problem problem = one_token(0, 1 << 20, 1 << 10);
  Ceilings ceilings;
  ceilings.memory_curve = {{1 << 16, 1e-6}, {1 << 30, 1e-2}};
  ceilings.cache_curve = {{1 << 16, 0.5e-6}, {1 << 30, 1e-2}};
  ceilings.cache_bytes = ceilings.kept_bytes = 1 << 26;
  ceilings.copy_bytes_per_s = 1e11;
  ceilings.launch_seconds = 1e-7;
  ceilings.peaks = {{Dtype::kBf16, 1e12}, {Dtype::kFp32, 1e12}};
  const auto judged = [&](const Measurement& measurement) {
    return held_to_ceilings(problem, measurement, ceilings);
  };
  const Row slow = judged(test::timed(1e6));
  CHECK_MESSAGE(slow.status == Status::kPassed, slow.message);
  CHECK(*slow.floor.us > 0);
  const Row impossible = judged(test::timed(0.001));
  CHECK(impossible.status == Status::kInvalid);
  CHECK(judge({impossible, slow}) == ExitCode::kInconclusive);
  for (const bool shrink : {true, false}) {
    const double shrink_us = shrink ? 0.001 : 5e5, expand_us = shrink ? 5e5 : 0.001;
    const Row part = judged(in_phases(test::timed(1e6), 0, shrink_us, expand_us));
    CHECK(part.status == Status::kInvalid);
    CHECK(part.message.starts_with(shrink ? "zero_us and shrink_us of 0.001 us"
                                          : "expand_us of 0.001 us"));
    // What was timed by itself and taken off a shrink is a part of it, and none of an expand.
    const Row zeroing = judged(in_phases(test::timed(1e6), 2e5, shrink_us, expand_us));
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
    const Row honest = judged(in_phases(test::timed(1e6, noise_us), 0, us, 5e5));
    CHECK_MESSAGE(honest.status == Status::kPassed, honest.message);
  }
  for (const double sample : {0.0, -3.0, std::nan(""), HUGE_VAL}) {
    Measurement backwards = test::timed(1e6);
    backwards.samples_s = {1, sample * 1e-6, 1, 1, 1};
    CHECK(judged(backwards).status == Status::kInvalid);
    CHECK(judged(test::timed(sample)).status == Status::kInvalid);
  }
}

}  // namespace
}  // namespace lora_bench
