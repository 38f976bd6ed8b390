#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "device/facts.h"
#include "support/process.h"
#include "support/small_scenario.h"

namespace lora_bench::test {
namespace {

std::string two_rows(const TemporaryFolder& folder) {
  const std::string rows = folder.path("rows.jsonl");
  const std::string file =
      folder.write("small.yaml", small_scenario("sweep: {product: {batch.decode: [2, 3]}}\n"));
  REQUIRE(run_tool({"run", file, "--backends", "cpu", "--out", rows}).exit_code == 0);
  return rows;
}

TEST_CASE("the columns asked for are those of every table that is written") {
  const TemporaryFolder folder;
  const std::string rows = two_rows(folder);
  for (const char* name : {"run.md", "run.txt", "report.md", "report.txt"}) {
    const std::string file = folder.path(name);
    const bool run = std::string(name).starts_with("run");
    const ProcessResult result =
        run ? run_tool({"run", folder.path("small.yaml"), "--backends", "cpu", "--columns",
                        "case,dtype", "--out", file})
            : run_tool({"report", rows, "--columns", "case,dtype", "--out", file});
    CAPTURE(file);
    CHECK(result.exit_code == 0);
    CHECK(contains(read_file(file), "dtype"));
    CHECK_FALSE(contains(read_file(file), "x floor"));
    CHECK_FALSE(contains(read_file(file), "Bold"));
  }
  const ProcessResult shown = run_tool({"report", rows, "--markdown", "--columns", "case,dtype"});
  CHECK(contains(shown.out, "| case | dtype |"));
}

TEST_CASE("a column that is not known costs no file") {
  const TemporaryFolder folder;
  const std::string kept = folder.write("kept.md", "what was there");
  const ProcessResult result =
      run_tool({"report", two_rows(folder), "--columns", "nonsense", "--out", kept});
  CHECK(result.exit_code == 1);
  CHECK(read_file(kept) == "what was there");
}

TEST_CASE("an option of report that would do nothing is refused") {
  const TemporaryFolder folder;
  const std::string rows = two_rows(folder);
  const ProcessResult value = run_tool({"report", rows, "--value", "bytes"});
  CHECK(value.exit_code == 1);
  CHECK(contains(value.err, "--value bytes fills the cells of --pivot, which is missing"));
  const ProcessResult chosen =
      run_tool({"report", rows, "--pivot", "tokens", "x", "backend", "--columns", "case"});
  CHECK(chosen.exit_code == 1);
  CHECK(contains(chosen.err, "leave one of them out"));
}

TEST_CASE("a pivot is what its files hold, and a form it has not is refused") {
  const TemporaryFolder folder;
  const std::string rows = two_rows(folder);
  const std::string markdown = folder.path("p.md");
  const ProcessResult written = run_tool(
      {"report", rows, "--pivot", "tokens", "x", "backend", "--value", "bytes", "--out", markdown});
  CAPTURE(written.err);
  CHECK(written.exit_code == 0);
  CHECK(contains(read_file(markdown), "| tokens \\\\ backend | cpu |"));
  const std::string table = folder.path("p.csv");
  const ProcessResult refused =
      run_tool({"report", rows, "--pivot", "tokens", "x", "backend", "--out", table});
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.err, ".md or .txt"));
  CHECK_FALSE(std::filesystem::exists(table));
}

TEST_CASE("a pivot over a key that is not there names those that were swept") {
  const TemporaryFolder folder;
  const ProcessResult result =
      run_tool({"report", two_rows(folder), "--pivot", "decode", "x", "rank"});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "a swept key: batch.decode"));
  CHECK(contains(result.err, "did you mean 'batch.decode'?"));
}

TEST_CASE("verify says why rows were skipped, each reason once with its count") {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("small.yaml", small_scenario("sweep: {product: {batch.decode: [2, 3]}}\n"));
  ProcessOptions options;
  options.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  const ProcessResult result = run_tool({"verify", file, "--backends", "cpu,naive"}, options);
  CHECK(contains(result.out, "SKIPPED on naive: 2 cases: "));
  CHECK_FALSE(contains(result.out, "SKIPPED on cpu"));
}

TEST_CASE("verify --quick leaves the relations out, and its rows say so") {
  const TemporaryFolder folder;
  const std::string file = folder.write("small.yaml", small_scenario());
  const std::string whole = folder.path("whole.jsonl");
  const std::string quick = folder.path("quick.jsonl");
  REQUIRE(run_tool({"verify", file, "--backends", "cpu", "--out", whole}).exit_code == 0);
  REQUIRE(run_tool({"verify", file, "--backends", "cpu", "--quick", "--out", quick}).exit_code ==
          0);
  CHECK(contains(read_file(whole), "relations"));
  CHECK_FALSE(contains(read_file(quick), "relations"));
  CHECK(contains(read_file(quick), "exact+bounded"));
}

TEST_CASE("a scenario that cannot be read hides none of the others") {
  const TemporaryFolder folder;
  folder.write("good.yaml", small_scenario());
  const std::string bad = folder.write("bad.yaml", small_scenario("sed: 1\n"));
  ProcessOptions options;
  options.environment = {{"LORA_BENCH_SCENARIOS", folder.folder()}};
  const ProcessResult some = run_tool({"list", "scenarios"}, options);
  CHECK(some.exit_code == 0);
  CHECK(contains(some.out, "good  does the tool work? (1 case)"));
  CHECK(contains(some.err, bad));
  std::filesystem::remove(folder.path("good.yaml"));
  const ProcessResult none = run_tool({"list", "scenarios"}, options);
  CHECK(none.exit_code == 1);
  CHECK(none.out.empty());
}

TEST_CASE("a scenarios folder that is not there is named") {
  ProcessOptions options;
  options.environment = {{"LORA_BENCH_SCENARIOS", "/nope"}};
  const ProcessResult run = run_tool({"run", "smoke"}, options);
  CHECK(run.exit_code == 1);
  CHECK(contains(run.err, "'/nope'"));
  CHECK(contains(run.err, "LORA_BENCH_SCENARIOS"));
  CHECK(contains(run_tool({"list", "scenarios"}, options).out, "'/nope'"));
}

TEST_CASE("a scenarios folder without a scenario is named") {
  const TemporaryFolder folder;
  folder.write("models.yaml", "");
  ProcessOptions options;
  options.environment = {{"LORA_BENCH_SCENARIOS", folder.folder()}};
  const ProcessResult run = run_tool({"run", "smoke"}, options);
  CHECK(run.exit_code == 1);
  CHECK(contains(run.err, "allowed: a file; there is no scenario in folder '" + folder.folder() +
                              "': set or unset LORA_BENCH_SCENARIOS"));
}

TEST_CASE("who asks a folder of their own for a shipped scenario is told of the folder") {
  const TemporaryFolder folder;
  folder.write("mine.yaml", "model: llama-3.1-8b\nlayers: o\nbatch.decode: 1\n");
  ProcessOptions options;
  options.environment = {{"LORA_BENCH_SCENARIOS", folder.folder()}};
  CHECK(contains(run_tool({"plan", "smoke"}, options).err,
                 "allowed: a file, or one of mine, which LORA_BENCH_SCENARIOS has in '" +
                     folder.folder() + "'"));
  CHECK(!contains(run_tool({"plan", "nosuch"}).err, "LORA_BENCH_SCENARIOS"));
}

TEST_CASE("a scenarios folder without models has the shipped ones, and one with models its own") {
  const TemporaryFolder folder;
  folder.write("mine.yaml", "model: llama-3.1-8b\nlayers: o\nbatch.decode: 1\n");
  ProcessOptions options;
  options.environment = {{"LORA_BENCH_SCENARIOS", folder.folder()}};
  const ProcessResult shipped = run_tool({"plan", "mine", "--backends", "cpu"}, options);
  CHECK_MESSAGE(shipped.exit_code == 0, shipped.err);
  CHECK(contains(run_tool({"list", "models"}, options).out, "llama-3.1-8b"));
  folder.write("models.yaml",
               "tiny:\n  source: here\n  blocks: 1\n  layers: {o: {in: 8, out: [8]}}\n");
  const ProcessResult replaced = run_tool({"plan", "mine", "--backends", "cpu"}, options);
  CHECK(replaced.exit_code == 1);
  CHECK_MESSAGE(contains(replaced.err, "allowed: tiny, and what you add"), replaced.err);
  CHECK_FALSE(contains(run_tool({"list", "models"}, options).out, "llama-3.1-8b"));
}

TEST_CASE("plan leaves out of its time what does not fit the memory") {
  const TemporaryFolder folder;
  const std::string file =
      folder.write("large.yaml",
                   "name: large\nquestion: does it fit?\nlayer: {in: 65536, out: [65536]}\n"
                   "batch: {decode: 1024}\nadapters: {slots: 1024, rank: 1024}\nskew: distinct\n");
  const ProcessResult result = run_tool({"plan", file, "--backends", "cpu"});
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "SKIPPED: needs "));
  CHECK(contains(result.out, "\n1 row, 1 of them SKIPPED\n"));
  CHECK(contains(run_tool({"plan", "smoke", "--backends", "cpu"}).out, " on an idle machine, "));
}

TEST_CASE("report takes --case as run does: globs, each of which has to match a case") {
  const TemporaryFolder folder;
  const std::string file = folder.write(
      "small.yaml", small_scenario("cases: [{name: decode2, batch.decode: 2}, {name: decode3, "
                                   "batch.decode: 3}, {name: other, batch.decode: 4}]\n"));
  const std::string rows = folder.path("rows.jsonl");
  REQUIRE(run_tool({"run", file, "--backends", "cpu", "--no-time", "--repeat", "2", "--out", rows})
              .exit_code == 0);
  const auto reported = [&](const std::vector<std::string>& cases) {
    std::vector<std::string> words{"report", rows};
    for (const std::string& glob : cases) {
      words.insert(words.end(), {"--case", glob});
    }
    return run_tool(words);
  };
  const ProcessResult one = reported({"decode3"});
  CHECK(contains(one.out, "\n2 rows: 2 PASSED"));
  CHECK(!contains(one.out, "decode2"));
  CHECK(contains(reported({"decode*"}).out, "\n4 rows: 4 PASSED"));
  CHECK(contains(reported({"other", "decode2"}).out, "\n4 rows: 4 PASSED"));
  const ProcessResult none = reported({"decode*", "dekode3"});
  CHECK(none.exit_code == 1);
  CHECK(none.err ==
        "no case is left to report: --case dekode3 matches none of 3; did you mean 'decode3'?\n");
  CHECK(run_tool({"run", file, "--case", "decode*", "--case", "dekode3"}).err ==
        "no case is left to run: --case dekode3 matches none of 3; did you mean 'decode3'?\n");
  const std::string kept = folder.path("kept.jsonl");
  REQUIRE(run_tool({"report", rows, "--case", "other", "--out", kept}).exit_code == 0);
  CHECK(contains(run_tool({"report", kept}).out, "\n2 rows: "));
}

TEST_CASE("plan --explain says below rows of auto what it would launch, and of which device") {
  const ProcessResult plan =
      run_tool({"plan", "anchors", "--case", "decode64-qkv*", "--backends", "auto,naive"});
  CHECK_FALSE(contains(plan.out, "few rows"));
  const ProcessResult none =
      run_tool({"plan", "anchors", "--case", "decode64-qkv*", "--backends", "cpu", "--explain"});
  CHECK(contains(none.out, "no row of backend auto to explain: add --backends auto"));
  const ProcessResult result = run_tool(
      {"plan", "anchors", "--case", "decode64-qkv*", "--backends", "auto,naive", "--explain"});
  CAPTURE(result.out);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "clustered, few rows an adapter: 64 tokens over 64 adapters\n"));
  const std::string of_naive = result.out.substr(result.out.find("naive"));
  CHECK_FALSE(contains(of_naive, "few rows"));
  CHECK((contains(result.out, "explained as on an NVIDIA H200") || why_no_gpu().empty()));
}

// What stands below the only row: its reason, the launch, and the tuning on a line of its own.
struct Explained {
  std::string reason, launch, tuning;
};

Explained explained_in(const std::string& text) {
  std::istringstream lines(text);
  Explained explained;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("    tuning: {")) {
      explained.tuning = line.substr(4) + "\n";
    } else if (line.starts_with("    ") && !line.starts_with("    SKIPPED: ")) {
      (explained.reason.empty() ? explained.reason : explained.launch) += line + "\n";
    }
  }
  return explained;
}

TEST_CASE("the tuning that plan --explain prints, copied into a scenario, is the same launch") {
  const TemporaryFolder folder;
  const std::string anchors = read_file(LORA_BENCH_SOURCE_DIR "/scenarios/anchors.yaml");
  const auto plan = [](const std::string& scenario, const char* id) {
    const ProcessResult result =
        run_tool({"plan", scenario, "--case", id, "--backends", "auto", "--explain"});
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    return explained_in(result.out);
  };
  for (const char* id : {"decode1-qkv-r16", "decode64-qkv-distinct-r16", "prefill2048-o-32-r128"}) {
    CAPTURE(id);
    const Explained chosen = plan("anchors", id);
    REQUIRE(chosen.tuning.starts_with("tuning: {family: "));
    const Explained copied = plan(folder.write("t.yaml", anchors + chosen.tuning), id);
    CHECK(contains(copied.reason, ", as tuning says: "));
    CHECK(copied.launch == chosen.launch);
    CHECK(copied.tuning == chosen.tuning);
  }
}

TEST_CASE("plan --explain of a layer is about the adapters of one shard") {
  const auto explained = [](const std::vector<std::string>& more) {
    std::vector<std::string> words{"plan",   "layers", "--backends", "auto",      "--explain",
                                   "--case", "*qkv*",  "--set",      "layer.tp=4"};
    words.insert(words.end(), more.begin(), more.end());
    return run_tool(words).out;
  };
  const std::string plain = explained({"--filter", "fully_sharded=false"});
  CAPTURE(plain);
  CHECK(contains(plain, "adapters of shard 0 of 4, apart from the base"));
  CHECK(plain != explained({"--filter", "fully_sharded=false", "--set", "layer.tp=1"}));
  // h is exchanged between the halves.
  const std::string halves = explained({"--filter", "fully_sharded=true"});
  CAPTURE(halves);
  CHECK(contains(halves, "    shrink: "));
  CHECK(contains(halves, "    expand: "));
  CHECK(contains(halves, "    tuning: {family: panel, shrink_tile: "));
  CHECK(contains(halves, ", chunks: "));
  CHECK(contains(explained({"--filter", "fully_sharded=false", "--set", "layer.fully_sharded=false",
                            "--set", "layer.overlap=fused"}),
                 "the launch of the base makes the adapters' part, and `auto` none; a row whose "
                 "sizes or device do not allow that is SKIPPED"));
}

TEST_CASE("plan takes a tuning file and says its tuning; a file of another device is refused") {
  if (!why_no_gpu().empty()) {
    const TemporaryFolder folder;
    const std::string text =
        "tool: t\ncommit: c\ndate: d\nshapes:\n"
        "  - {op: linear, dtype: bf16, intermediate: fp32, in: 4096, out: [4096, 1024, 1024],\n"
        "     rank: 16, tokens: 64, rows: 1, time_us: 1, auto_us: 2,\n"
        "     tuning: {family: panel, split: 2}}\n";
    const auto plan = [&](const std::string& device) {
      return run_tool({"plan", "anchors", "--case", "decode64-qkv*", "--backends", "auto",
                       "--explain", "--tuning",
                       folder.write("t.yaml", "device: " + device + "\n" + text)});
    };
    CHECK(contains(plan("NVIDIA H200").out, "panel, as tuning says: family: panel, split: 2"));
    CHECK(plan("NVIDIA H200").err.empty());
    const ProcessResult other = plan("NVIDIA L4");
    CHECK(other.exit_code == 1);
    CHECK(contains(other.err,
                   "tunings of 'NVIDIA L4'; there is no GPU here, and plan explains an "
                   "'NVIDIA H200'"));
    CHECK(run_tool({"plan", "smoke", "--tuning", "none.yaml"}).err ==
          "cannot read none.yaml: No such file or directory; allowed: what `lora-bench tune "
          "SCENARIO --out FILE.yaml` wrote\n");
  }
}

TEST_CASE("a tuning file that does nothing for the cases is told on stderr by every command") {
  if (!why_no_gpu().empty()) {
    const TemporaryFolder folder;
    const auto file = [&](const std::string& in_and_out) {
      return folder.write("t.yaml",
                          "device: NVIDIA H200\ntool: t\ncommit: c\ndate: d\nshapes:\n"
                          "  - {op: linear, dtype: bf16, intermediate: fp32, " +
                              in_and_out +
                              ", rank: 16,\n     tokens: 2048, rows: 2048, time_us: 1, auto_us: 2, "
                              "tuning: {family: resident}}\n");
    };
    const std::string tuning = file("in: 64, out: [64]");
    const std::string note = "no entry of " + tuning + " fits a case here\n";
    const std::vector<std::string> selection{
        "smoke", "--case", "decode32-rank16", "--backends", "cpu", "--tuning", tuning};
    const std::vector<std::vector<std::string>> commands{{"plan"},
                                                         {"run", "--no-time", "--quiet"},
                                                         {"verify", "--quick", "--quiet"},
                                                         {"export", "--to", folder.path("x")}};
    for (std::vector<std::string> command : commands) {
      CAPTURE(command.front());
      command.insert(command.end(), selection.begin(), selection.end());
      const ProcessResult result = run_tool(command);
      CHECK(result.exit_code == 0);
      CHECK(contains(result.err, note));
      CHECK(result.err.find(note) == result.err.rfind(note));
    }
    static_cast<void>(file("in: 4096, out: [4096, 1024, 1024]"));
    const std::string why_not =
        "tuning.family resident: the weights of 1 adapter of rank 16 are more than the shared "
        "memory of clusters that run at once; allowed: clustered, panel\n";
    CHECK(run_tool({"plan", "anchors", "--backends", "auto", "--tuning", tuning}).err ==
          "prefill2048-qkv-1-r16: auto chooses, not as " + tuning + " says: " + why_not);
  }
}

TEST_CASE("tune without a GPU is one line and exit code 5") {
  if (!why_no_gpu().empty()) {
    const TemporaryFolder folder;
    const ProcessResult result =
        run_tool({"tune", "anchors", "--time-limit", "5", "--out", folder.path("t.yaml")});
    CHECK(result.exit_code == 5);
    CHECK(result.err.starts_with("lora-bench: tune times on a GPU: "));
    // Why there is none: of a sanitized tool, that it was built without CUDA.
    CHECK((contains(result.err, why_no_gpu() + "; run it") || tool_is_sanitized()));
    // What it says to do instead can be done here.
    const std::string command = "lora-bench plan anchors --backends auto --explain";
    CHECK(contains(result.err, "`" + command + "`"));
    CHECK(run_tool({"plan", "anchors", "--backends", "auto", "--explain"}).exit_code == 0);
    CHECK(result.err.find('\n') == result.err.size() - 1);
    CHECK_FALSE(std::filesystem::exists(folder.path("t.yaml")));
  }
}

TEST_CASE("list layers says which kind replaces a base layer, by outputs and modules") {
  const ProcessResult list = run_tool({"list", "layers"});
  CHECK(list.exit_code == 0);
  CHECK(contains(list.out, "merged_column    1 or more  3 or more  merged_column_variable  not "));
  CHECK(contains(list.out, "qkv                      3          1  qkv "));
}

}  // namespace
}  // namespace lora_bench::test
