#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/process.h"
#include "support/small_scenario.h"

namespace lora_bench::test {
namespace {

TEST_CASE("exit 1: buffers apart are for one process") {
  const std::vector<std::string> line{"verify",     "smoke", "--quick",        "--quiet",
                                      "--backends", "cpu",   "--buffers-apart"};
  CHECK(run_tool(line).exit_code == 0);
  std::vector<std::string> isolated = line;
  isolated.emplace_back("--isolate");
  CHECK(run_tool(isolated).exit_code == 1);
  std::vector<std::string> several = line;
  several.insert(several.end(), {"--jobs", "2"});
  CHECK(run_tool(several).exit_code == 1);
}

TEST_CASE("plan --form align shows lists of a case with experts, and refuses one without") {
  const ProcessResult shown =
      run_tool({"plan", "verify/metadata-align", "--case", "one-row", "--form", "align"});
  CHECK(shown.exit_code == 0);
  CHECK(contains(shown.out, "pair_order int32[384], published as sorted_token_ids"));
  CHECK(contains(shown.out, "lora_ids"));
  const ProcessResult json =
      run_tool({"plan", "verify/metadata-align", "--case", "one-row", "--form", "align", "--json"});
  CHECK(json.exit_code == 0);
  CHECK(contains(json.out, "null,null"));
  const ProcessResult without = run_tool({"plan", "smoke", "--form", "align"});
  CHECK(without.exit_code == 1);
  CHECK(contains(without.err, "form align lists the experts of rows, and this case has none"));
}

// With --correct-cases 1 a self-test that is not refused ends in seconds, not minutes.
TEST_CASE("exit 1: the self-test refuses what it would ignore") {
  const TemporaryFolder folder;
  const std::string out = folder.path("rows.jsonl");
  const std::vector<std::vector<std::string>> ignored{
      {"smoke"},       {"--backends", "cpu"},  {"--set", "dtype=fp16"},
      {"--case", "*"}, {"--max-cases", "3"},   {"--filter", "rank>=8"},
      {"--isolate"},   {"--buffers-apart"},    {"--out", out},
      {"--quick"},     {"--tuning", "t.yaml"}, {"--jobs", "2"}};
  for (const std::vector<std::string>& words : ignored) {
    std::vector<std::string> line{"verify", "--self-test", "--quiet", "--correct-cases", "1"};
    line.insert(line.end(), words.begin(), words.end());
    CAPTURE(words.front());
    const ProcessResult result = run_tool(line);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "takes --correct-cases, --seed and --quiet alone: leave out "));
    CHECK(contains(result.err, words.front() == "smoke" ? "the scenario" : words.front()));
  }
  CHECK(!std::filesystem::exists(out));
}

TEST_CASE("exit 1: a threshold that nothing would be timed for is refused before any work") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string limited =
      folder.write("limited.yaml", small_scenario("thresholds: {max_time_us: 0.001}\n"));
  const std::string out = folder.path("rows.jsonl");
  const auto told = [&](std::vector<std::string> line) {
    line.insert(line.begin(), "run");
    line.insert(line.end(), {"--backends", "fake", "--out", out});
    const ProcessResult result = run_tool(line);
    CHECK(result.exit_code == 1);
    return result.err;
  };
  for (const char* threshold : {"max_time_us=0.001", "max_floor_ratio=2", "min_tokens_per_s=1"}) {
    CHECK(contains(told({file, "--no-time", "--threshold", threshold}),
                   "of the command line would not be judged: nothing is timed with --no-time"));
  }
  CHECK(contains(told({file, "--set", "measure=false", "--threshold", "max_time_us=1"}),
                 "nothing is timed with measure: false"));
  CHECK(contains(told({limited, "--no-time"}), "threshold max_time_us of case "));
  CHECK(contains(told({file, "--threshold", "max_tax_pct=5"}),
                 "threshold max_tax_pct would not be judged: case "));
  CHECK(
      contains(told({limited, "--set", "measure=false"}), "nothing is timed with measure: false"));
  CHECK(!std::filesystem::exists(out));
  CHECK(run_tool({"verify", limited, "--backends", "fake", "--quick"}).exit_code == 0);
  CHECK(run_tool({"run", file, "--backends", "fake", "--no-time", "--set",
                  "thresholds.max_regression=5%"})
            .exit_code == 0);
}

TEST_CASE("exit 1: tune refuses what it would ignore, and does not offer it") {
  const TemporaryFolder folder;
  const std::string out = folder.path("t.yaml");
  const auto told = [&](const char* option, const char* value) {
    const ProcessResult result = run_tool({"tune", "anchors", "--out", out, option, value});
    CHECK(result.exit_code == 1);
    return result.err;
  };
  CHECK(told("--tuning", "h200.yaml") ==
        "tune searches from what auto itself chooses and reads no tunings: leave out --tuning "
        "h200.yaml; run, verify, plan and export read it\n");
  CHECK(told("--backends", "auto,naive") ==
        "tune launches auto and no other backend: leave out --backends auto,naive\n");
  CHECK(!std::filesystem::exists(out));
  const std::string help = run_tool({"tune", "--help"}).out;
  CHECK(contains(help, "--time-limit"));
  CHECK(!contains(help, "\n  --tuning"));
  CHECK(!contains(help, "--backends"));
}

TEST_CASE("exit 1: tune refuses chosen cases that have a tuning of their own, with its place") {
  const TemporaryFolder folder;
  const std::string out = folder.path("t.yaml");
  const std::string file = folder.write("tuned.yaml",
                                        "layer: {in: 64, out: [64]}\n"
                                        "batch.decode: 4\n"
                                        "cases:\n"
                                        "  - {name: plain}\n"
                                        "  - {name: told, tuning: {family: panel, split: 4}}\n");
  const auto tuned = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"tune", file, "--out", out});
    return run_tool(more);
  };
  const std::string remedy =
      ", where tune searches from what auto itself chooses; allowed: a case without tuning: leave "
      "it out, or choose others with --case or --filter\n";
  const ProcessResult of_file = tuned({});
  CHECK(of_file.exit_code == 1);
  CHECK(of_file.err == file + ":5:35: tuning {family: panel, split: 4}" + remedy);
  const ProcessResult set = tuned({"--case", "plain", "--set", "tuning.family=clustered"});
  CHECK(set.exit_code == 1);
  CHECK(contains(set.err, "--set tuning.family=clustered: tuning {family: clustered}" + remedy));
  CHECK(!std::filesystem::exists(out));
  // What is not chosen does no harm: all that may be missing is a GPU.
  CHECK(tuned({"--case", "plain", "--time-limit", "1"}).exit_code != 1);
  CHECK(run_tool({"plan", file}).exit_code == 0);
}

TEST_CASE("exit 1: report does not write over what it reads") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string rows = folder.path("rows.jsonl");
  REQUIRE(run_tool({"run", file, "--backends", "fake", "--no-time", "--out", rows}).exit_code == 0);
  const std::string before = read_file(rows);
  const std::string hard = folder.path("hard.jsonl");
  const std::string soft = folder.path("soft.jsonl");
  std::filesystem::create_hard_link(rows, hard);
  std::filesystem::create_symlink(rows, soft);
  for (const std::string& out : {rows, folder.folder() + "/./rows.jsonl", hard, soft}) {
    CAPTURE(out);
    const ProcessResult result = run_tool({"report", rows, "--out", out});
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "is read by this report and would be written over"));
    CHECK(read_file(rows) == before);
  }
  const ProcessResult second =
      run_tool({"report", rows, "--out", folder.path("a.csv"), "--out", hard});
  CHECK(second.exit_code == 1);
  CHECK(!std::filesystem::exists(folder.path("a.csv")));
  CHECK(run_tool({"report", rows, "--out", folder.path("b.jsonl")}).exit_code == 0);
}

}  // namespace
}  // namespace lora_bench::test
