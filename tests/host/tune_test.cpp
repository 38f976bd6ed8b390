#include "run/tune.h"

#include <doctest/doctest.h>

#include <map>

#include "core/error.h"
#include "ops/auto_tuning.h"
#include "support/process.h"
#include "support/workload_case.h"

using namespace lora_bench;
using lora_bench::test::contains;

namespace {

Case layer_case(std::int64_t tokens, std::int64_t slots) {
  Case spec = workload_case(tokens, slots);
  spec.id = "t" + std::to_string(tokens);
  spec.dtype = Dtype::kBf16;
  spec.layer.in_features = spec.layer.x_stride = 4096;
  spec.layer.widths = {4096};
  spec.layer.y_stride = 4096;
  spec.adapters.rank.list = {16};
  spec.adapters.max_rank = 16;
  spec.skew.kind = Skew::kDistinct;
  return spec;
}

// Clusters of four blocks of four warps are the fastest by half.
double pretended_us(const Tuning& tuning) {
  const AutoKnobs knobs = knobs_of(tuning);
  double time = 20;
  time -= knobs.cluster == 4 ? 5 : 0;
  time -= knobs.warps == 4 ? 5 : 0;
  return time;
}

TuningSearch searched(
    const TimeOf& time_of, const std::function<bool()>& ended = [] { return false; }) {
  return search_tuning({}, problem_of(layer_case(64, 64)), time_of, ended);
}

TuningFile one_shape() {
  TuningFile tunings{"NVIDIA H200", "lora-bench 0.1.0", "abc", "2026-11-22T00:00:00Z", {}};
  const Tuning tuning = tuning_of({.family = AutoFamily::kPanel, .split = 4});
  tunings.shapes.push_back({shape_class(problem_of(layer_case(64, 64))), tuning, 11.5, 12.25});
  return tunings;
}

const TuningDevice kH200{.device = {}, .name = "NVIDIA H200"};

// Of each of them on `auto`.
std::vector<PlannedRow> rows_of(const std::vector<Case>& cases) {
  std::vector<PlannedRow> rows;
  for (const Case& spec : cases) {
    rows.push_back({&spec, "auto", 0, "auto"});
  }
  return rows;
}

std::string refused(const std::string& text) {
  try {
    static_cast<void>(parse_tuning_file(text, "t.yaml", tuning_rules()));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a tuning of weights of eight bits is for those alone, in the file too") {
  Case spec = layer_case(64, 64);
  const ShapeClass of_16 = shape_class(problem_of(spec));
  spec.weights.dtype = Dtype::kE4m3;
  spec.weights.scale = WeightsScale::kChannel;
  TuningFile tunings = one_shape();
  tunings.shapes.push_back(
      {shape_class(problem_of(spec)), tuning_of({.family = AutoFamily::kClustered}), 5, 6});
  CHECK_FALSE(tunings.shapes[0].shape == tunings.shapes[1].shape);
  CHECK(tunings.shapes[0].shape == of_16);
  const std::string text = tuning_file_text(tunings);
  const TuningFile read = parse_tuning_file(text, "t.yaml", tuning_rules());
  REQUIRE(read.shapes.size() == 2);
  CHECK(read.shapes[0].shape == tunings.shapes[0].shape);
  CHECK(read.shapes[1].shape == tunings.shapes[1].shape);
  std::string wrong = text;
  wrong.replace(wrong.find("e4m3"), 4, "bf16");
  CHECK(refused(wrong).find("allowed: e4m3, e5m2") != std::string::npos);
}

TEST_CASE("a scenario in place of a tuning file is told once, with what belongs there") {
  const std::string wanted =
      ":1:1: a scenario, and no file of tunings; allowed: what `lora-bench tune SCENARIO --out "
      "FILE.yaml` wrote";
  CHECK(refused("name: decode\nlayer: {in: 64, out: 64}\nbatch.decode: 1\n") == "t.yaml" + wanted);
  CHECK(refused("sweep: {batch.decode: [1]}\n") == "t.yaml" + wanted);
  CHECK(refused("batch: {decode: 1}\n") == "t.yaml" + wanted);
  // One that is a tuning file with a mistake is read as one.
  CHECK(refused("device: d\ntool: t\ncommit: c\ndate: e\nshapes: []\nname: x\n") ==
        "t.yaml:6:1: unknown key 'name'; allowed: device, tool, commit, date, shapes; did you mean "
        "'date'?");
  CHECK(refused("device: d\ntool: t\ncommit: c\ndate: e\n") ==
        "t.yaml:1:1: 'shapes' is no list; allowed: a list of maps");
  try {
    static_cast<void>(load_tuning_file("smoke", tuning_rules()));
    FAIL("found");
  } catch (const UsageError& error) {
    CHECK(std::string(error.what()) ==
          "cannot read smoke: No such file or directory; allowed: what `lora-bench tune SCENARIO "
          "--out FILE.yaml` wrote");
  }
}

TEST_CASE("search: finds what is fastest in two steps, and times no launch twice") {
  std::map<std::string, int> timed;
  const TuningSearch search = searched([&](const Tuning& tuning, bool) -> std::optional<Timed> {
    ++timed[tuning_text(tuning)];
    return Timed{pretended_us(tuning), 0.1};
  });
  REQUIRE(search.found);
  CHECK(knobs_of(search.found->tuning).cluster == 4);
  CHECK(knobs_of(search.found->tuning).warps == 4);
  CHECK(search.found->time_us == 10);
  CHECK(search.found->auto_us == 20);
  CHECK(search.found->shape.tokens == 64);
  for (const auto& candidate : timed) {
    const std::string& tuning = candidate.first;
    CAPTURE(tuning);
    // The best and auto's own once more, to be sure.
    CHECK(candidate.second <=
          (tuning.empty() || tuning == tuning_text(search.found->tuning) ? 2 : 1));
  }
  CHECK(static_cast<std::int64_t>(timed.size()) == search.tried);
}

TEST_CASE("search: tries clusters that share columns, and finds them where they are fastest") {
  const TuningSearch search = searched([](const Tuning& tuning, bool) -> std::optional<Timed> {
    return Timed{knobs_of(tuning).groups == 3 ? 10.0 : 20.0, 0.1};
  });
  REQUIRE(search.found);
  CHECK(knobs_of(search.found->tuning).groups == 3);
  CHECK(knobs_of(search.found->tuning).family == AutoFamily::kClustered);
}

TEST_CASE("search: a family that auto does not choose is found too") {
  for (const AutoFamily family : {AutoFamily::kPanel, AutoFamily::kClustered}) {
    const Problem problem = problem_of(layer_case(1, 1));
    REQUIRE(auto_family({}, problem) == AutoFamily::kResident);
    const TuningSearch search = search_tuning(
        {}, problem,
        [&](const Tuning& tuning, bool) -> std::optional<Timed> {
          return Timed{knobs_of(tuning).family == family ? 5.0 : 20.0, 0.1};
        },
        [] { return false; });
    CAPTURE(name(family));
    REQUIRE(search.found);
    CHECK(knobs_of(search.found->tuning).family == family);
  }
}

TEST_CASE("search: what is within the noise, or fast only once, is not better than auto") {
  const auto noisy = [](const Tuning& tuning, bool) -> std::optional<Timed> {
    return Timed{pretended_us(tuning), 6};
  };
  CHECK_FALSE(searched(noisy).found);
  // Nor is what gains less than one machine differs from the next, however well it is known.
  const auto gaining = [](double share) {
    return searched([=](const Tuning& tuning, bool) -> std::optional<Timed> {
      return Timed{knobs_of(tuning).cluster == 4 ? 20 * (1 - share) : 20, 0.001};
    });
  };
  CHECK_FALSE(gaining(0.008).found);
  CHECK(gaining(0.012).found);
  std::map<std::string, int> timed;
  const auto lucky = [&](const Tuning& tuning, bool) -> std::optional<Timed> {
    const bool first = timed[tuning_text(tuning)]++ == 0;
    return Timed{first ? pretended_us(tuning) : 20, 0.1};
  };
  CHECK_FALSE(searched(lucky).found);
  // auto's own was slow by chance.
  timed.clear();
  const auto unlucky = [&](const Tuning& tuning, bool) -> std::optional<Timed> {
    const bool again = timed[tuning_text(tuning)]++ > 0 && tuning == Tuning{};
    return Timed{again ? 9 : pretended_us(tuning), 0.1};
  };
  CHECK_FALSE(searched(unlucky).found);
}

TEST_CASE("search: what is not proved is never best; where auto itself is not, nothing is tried") {
  const auto wrong = [](const Tuning& tuning, bool) -> std::optional<Timed> {
    return knobs_of(tuning).cluster == 4 ? std::nullopt
                                         : std::optional<Timed>({pretended_us(tuning), 0.1});
  };
  const TuningSearch search = searched(wrong);
  REQUIRE(search.found);
  CHECK(knobs_of(search.found->tuning).cluster != 4);
  CHECK(knobs_of(search.found->tuning).warps == 4);
  CHECK(searched([](const Tuning&, bool) { return std::optional<Timed>(); }).tried == 1);
}

TEST_CASE("search: ends when told, and asks only for what the device launches") {
  int asked = 0;
  const auto count = [&](const Tuning& tuning, bool) -> std::optional<Timed> {
    ++asked;
    Problem problem = problem_of(layer_case(64, 64));
    problem.tuning = tuning;
    CHECK_FALSE(tuning_rules().fault(tuning));
    CHECK(why_not_tuned({}, problem).empty());
    return Timed{pretended_us(tuning), 0.1};
  };
  static_cast<void>(searched(count));
  CHECK(asked > 10);
  asked = 0;
  static_cast<void>(searched(count, [&] { return asked >= 3; }));
  CHECK(asked <= 5);
}

TEST_CASE("tune: classes share the time that is left; what was found is kept at once") {
  const std::vector<Case> cases{layer_case(64, 64), layer_case(60, 60), layer_case(2048, 1)};
  const std::vector<PlannedRow> rows = rows_of(cases);
  double now = 0;
  std::size_t kept = 0;
  std::int64_t brief = 0;
  std::int64_t full = 0;
  std::map<std::string, double> spent;
  TuneRequest request{.rows = rows,
                      .device = {},
                      .limit_s = 40,
                      .time_of = [&](const Case& spec) -> std::optional<Timed> {
                        now += 1;
                        spent[spec.id] += 1;
                        ++(spec.measure.warmup_ms == 200 ? full : brief);
                        return Timed{pretended_us(spec.tuning), 0.1};
                      },
                      .seconds = [&] { return now; },
                      .interrupted = [] { return false; },
                      .keep = [&](const auto& found) { kept = found.size(); },
                      .progress = [](std::int64_t, std::int64_t, const std::string&) {}};
  const TuneReport report = tune(request);
  CHECK(report.classes == 2);  // 60 and 64 tokens are one class
  CHECK(report.searched == 2);
  CHECK(kept == report.found.size());
  CHECK(spent["t64"] <= 22);
  CHECK(spent["t2048"] > 10);
  CHECK(spent.count("t60") == 0);
  // The times that decide are taken as the case asks.
  CHECK(full == 2 * static_cast<std::int64_t>(report.found.size()));
  CHECK(brief > full);

  now = 0;
  request.interrupted = [&] { return now > 30; };
  const TuneReport cut = tune(request);
  CHECK(cut.searched == 1);
  CHECK(kept == cut.found.size());
}

TEST_CASE("tuning file: what is written is read again") {
  const TuningFile written = one_shape();
  const TuningFile read = parse_tuning_file(tuning_file_text(written), "t.yaml", tuning_rules());
  CHECK(read.device == written.device);
  CHECK(read.commit == written.commit);
  REQUIRE(read.shapes.size() == 1);
  CHECK(read.shapes.front().shape == written.shapes.front().shape);
  CHECK(read.shapes.front().tuning == written.shapes.front().tuning);
  CHECK(read.shapes.front().auto_us == 12.25);
  CHECK(parse_tuning_file(tuning_file_text({"d", "t", "c", "n", {}}), "t.yaml", tuning_rules())
            .shapes.empty());
}

TEST_CASE("tuning file: the shipped one of the H200 tells a class of the anchors") {
  const TuningFile shipped =
      load_tuning_file(LORA_BENCH_SOURCE_DIR "/tunings/nvidia-h200.yaml", tuning_rules());
  CHECK(shipped.device == "NVIDIA H200");
  REQUIRE(shipped.shapes.size() == 1);
  CHECK(shipped.shapes[0].time_us < shipped.shapes[0].auto_us);
  std::vector<Scenario> scenarios{
      load_scenario(LORA_BENCH_SOURCE_DIR "/scenarios/anchors.yaml", {})};
  apply_tunings(scenarios, shipped, "nvidia-h200.yaml", kH200);
  for (const Case& spec : scenarios[0].cases) {
    CAPTURE(spec.id);
    CHECK((knobs_of(spec.tuning).family == AutoFamily::kPanel) ==
          (spec.id == "decode128-down-uniform8-r32"));
  }
}

TEST_CASE("tuning file: what is wrong is told with its place") {
  const std::string text = tuning_file_text(one_shape());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    return refused(changed.replace(changed.find(from), from.size(), to));
  };
  CHECK(refused(text).empty());
  CHECK(contains(with("split: 4", "split: 3"), "t.yaml:8:"));
  CHECK(contains(with("split: 4", "split: 3"), "'tuning.split' is 3; allowed: 1, 2, 4, 8"));
  CHECK(contains(with("split: 4", "spilt: 4"), "did you mean 'tuning.split'?"));
  CHECK(contains(with("rank: 16", "rnak: 16"), "did you mean 'rank'?"));
  CHECK(contains(with("rank: 16", "rnak: 16"), "'rank' is missing"));
  CHECK(contains(with("device", "machine"), "unknown key 'machine'"));
  CHECK(contains(with("tokens: 64", "tokens: many"),
                 "'tokens' is 'many'; allowed: a power of two from 1 to 1048576"));
  CHECK(contains(refused(text + text.substr(text.find("  - {"))), "t.yaml:9:"));
  CHECK(contains(refused("device: x\nshapes: 3\n"), "'shapes' is no list"));
  CHECK(contains(refused(""), "empty"));
}

TEST_CASE("tuning file: what no case can be is refused as a scenario would refuse it") {
  const std::string text = tuning_file_text(one_shape());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    return refused(changed.replace(changed.find(from), from.size(), to));
  };
  const std::string ops = "; allowed: shrink, expand, linear, embedding, logits";
  CHECK(with("op: linear", "op: liner") ==
        "t.yaml:7:10: 'op' is 'liner'" + ops + "; did you mean 'linear'?");
  CHECK(with("op: linear", "op: layer") ==
        "t.yaml:7:10: 'op' is layer, whose adapters are a linear op" + ops);
  CHECK(
      contains(with("dtype: bf16", "dtype: bf61"), "'dtype' is 'bf61'; allowed: bf16, fp16, fp32"));
  const std::string dtypes = "; allowed: fp32 or the same as `dtype`";
  CHECK(contains(with("intermediate: fp32", "intermediate: x"), "'intermediate' is 'x'" + dtypes));
  CHECK(contains(with("intermediate: fp32", "intermediate: fp16"),
                 "'intermediate' is fp16 with dtype bf16" + dtypes));
  CHECK(with("intermediate: fp32", "intermediate: bf16").empty());
  CHECK(contains(with("in: 4096", "in: 0"), "'in' is '0'; allowed: an integer from 1 to 16777216"));
  CHECK(contains(with("out: [4096]", "out: []"), "'out' has 0 widths; allowed: 1 to 64 integers"));
  std::string logits = text;
  logits.replace(logits.find("linear"), 6, "logits");
  CHECK(refused(logits).empty());
  CHECK(contains(refused(logits.replace(logits.find("[4096]"), 6, "[64, 64]")),
                 "'out' has 2 widths with op logits; allowed: one"));
}

TEST_CASE("tuning file: sizes between those of two classes are refused") {
  const std::string text = tuning_file_text(one_shape());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    return refused(changed.replace(changed.find(from), from.size(), to));
  };
  CHECK(with("rows: 1", "rows: 7") ==
        "t.yaml:7:102: 'rows' is 7; allowed: a power of two, 8 holds 5 to 8");
  CHECK(contains(with("tokens: 64", "tokens: 65"),
                 "'tokens' is 65; allowed: a power of two, 128 holds 65 to 128"));
  CHECK(contains(with("rank: 16", "rank: 48"),
                 "'rank' is 48; allowed: a power of two, 64 holds 33 to 64"));
  CHECK(contains(with("rank: 16", "rank: 8192"),
                 "'rank' is '8192'; allowed: a power of two from 1 to 4096"));
  CHECK(contains(with("rows: 1", "rows: 128"),
                 "'rows' is 128 with tokens 64; allowed: at most the tokens"));
}

TEST_CASE("tuning file: what is missing in an entry and in its alias is told once") {
  const std::string head = "device: d\ntool: t\ncommit: c\ndate: e\nshapes:\n";
  const std::string once = refused(head + "  - {op: linear}\n");
  CHECK(contains(once, "t.yaml:6:5: 'rows' is missing"));
  CHECK(contains(once, "t.yaml:6:5: 'out' is missing"));
  CHECK(contains(refused(head + "  - &a {op: linear, rows: 7}\n  - *a\n"), "'rows' is 7; allowed"));
}

TEST_CASE("tuning file: a number is no name of a tool, nor of a device") {
  const std::string shapes = "commit: c\ndate: e\nshapes: []\n";
  CHECK(refused("device: d\ntool: 5\n" + shapes) ==
        "t.yaml:2:7: 'tool' is 5; allowed: text; a number in quotes");
  CHECK(refused("device: 1e3\ntool: t\n" + shapes) ==
        "t.yaml:1:9: 'device' is 1e3; allowed: text; a number in quotes");
  CHECK(refused("device: \"5\"\ntool: t\n" + shapes).empty());
}

TEST_CASE("tuning file: cases of its classes are told, those with a tuning of their own are not") {
  Scenario scenario;
  scenario.cases = {layer_case(64, 64), layer_case(60, 60), layer_case(65, 65), layer_case(64, 64)};
  scenario.cases.back().tuning = tuning_of({.family = AutoFamily::kClustered});
  std::vector<Scenario> scenarios{scenario};
  const std::uint64_t before = scenario.content_hash;
  apply_tunings(scenarios, one_shape(), "t.yaml", kH200);
  const std::vector<Case>& cases = scenarios.front().cases;
  CHECK(knobs_of(cases[0].tuning).split == 4);
  CHECK(knobs_of(cases[1].tuning).split == 4);
  CHECK(cases[2].tuning == Tuning{});
  CHECK(knobs_of(cases[3].tuning).split == 0);
  CHECK(scenarios.front().content_hash != before);

  // What another device cannot launch is left to auto; a file of another device is refused.
  TuningFile clusters = one_shape();
  clusters.shapes.front().tuning = tuning_of({.family = AutoFamily::kClustered});
  scenarios = {scenario};
  apply_tunings(scenarios, clusters, "t.yaml",
                {.device = {.compute_capability = 80}, .name = "NVIDIA H200"});
  CHECK(scenarios.front().cases[0].tuning == Tuning{});
  CHECK_THROWS_WITH_AS(apply_tunings(scenarios, clusters, "t.yaml", {{}, "NVIDIA L4"}),
                       "t.yaml: tunings of 'NVIDIA H200' on 'NVIDIA L4'; allowed: a file that "
                       "`lora-bench tune` wrote on such a device",
                       UsageError);
}

TEST_CASE("tuning file: one that fits no case of the rows is told") {
  Scenario scenario;
  scenario.cases = {layer_case(64, 64), layer_case(65, 65)};
  std::vector<Scenario> scenarios{scenario};
  const std::vector<TunedCase> tuned = apply_tunings(scenarios, one_shape(), "t.yaml", kH200);
  const std::vector<PlannedRow> rows = rows_of(scenarios.front().cases);
  CHECK(tuning_notes(rows, tuned, "t.yaml").empty());
  CHECK(tuning_notes({rows[1]}, tuned, "t.yaml") == "no entry of t.yaml fits a case here\n");
  // A case with a tuning of its own needs none.
  scenario.cases[0].tuning = tuning_of({.family = AutoFamily::kPanel});
  scenarios = {scenario};
  CHECK(tuning_notes(rows_of(scenarios.front().cases),
                     apply_tunings(scenarios, one_shape(), "t.yaml", kH200), "t.yaml")
            .empty());
}

TEST_CASE("tuning file: what the device cannot launch is told as --set would tell it") {
  Scenario scenario;
  scenario.cases = {layer_case(64, 64), layer_case(65, 65)};
  std::vector<Scenario> scenarios{scenario};
  const TuningDevice a100{.device = {.compute_capability = 80}, .name = "NVIDIA H200"};
  TuningFile clusters = one_shape();
  clusters.shapes.front().tuning = tuning_of({.family = AutoFamily::kClustered});
  const std::vector<TunedCase> tuned = apply_tunings(scenarios, clusters, "t.yaml", a100);
  Problem said = problem_of(scenario.cases[0]);
  said.tuning = clusters.shapes.front().tuning;
  const std::string why_not = why_not_tuned(a100.device, said);
  REQUIRE_FALSE(why_not.empty());
  const std::vector<PlannedRow> rows = rows_of(scenarios.front().cases);
  CHECK(tuning_notes(rows, tuned, "t.yaml") ==
        "t64: auto chooses, not as t.yaml says: " + why_not + "\n");
  // Of rows that are left out nothing is told but that.
  CHECK(tuning_notes({rows[1]}, tuned, "t.yaml") == "no entry of t.yaml fits a case here\n");
}

TEST_CASE("tuning file: without a GPU it must be of the one that plan explains") {
  std::vector<Scenario> scenarios(1);
  TuningFile other = one_shape();
  other.device = "NVIDIA H100 80GB HBM3";
  CHECK_THROWS_WITH_AS(
      apply_tunings(scenarios, other, "t.yaml", {{}, "NVIDIA H200", false}),
      "t.yaml: tunings of 'NVIDIA H100 80GB HBM3'; there is no GPU here, and plan explains an "
      "'NVIDIA H200'; allowed: a file that `lora-bench tune` wrote on such a device",
      UsageError);
}
