#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "support/need_numpy.h"
#include "support/process.h"

namespace lora_bench::test {
namespace {

const std::string kScripts = std::string(LORA_BENCH_SOURCE_DIR) + "/scripts/";

// A case of smoke, exported into a folder of its own; returns the file of its tensors.
std::string export_case(const TemporaryFolder& folder, const std::string& backend,
                        const std::string& to) {
  const ProcessResult result = run_tool({"export", "smoke", "--case", "decode8-rank8", "--backends",
                                         backend, "--to", folder.path(to)});
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return folder.path(to) + "/decode8-rank8.safetensors";
}

void check_refused(const ProcessResult& result, int exit_code, const std::string& sentence) {
  CAPTURE(result.err);
  CAPTURE(sentence);
  CHECK(result.exit_code == exit_code);
  CHECK(contains(result.err, sentence));
  CHECK_FALSE(contains(result.err, "Traceback"));
}

}  // namespace

TEST_CASE(
    "check_export.py checks every file it is given, and one wrong file is told by exit code") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const std::string right = export_case(folder, "cpu", "right");
  const std::string wrong = export_case(folder, "mutant:scale-twice", "wrong");
  const std::string script = kScripts + "check_export.py";
  const ProcessResult both = run_process({python, script, right, right});
  CHECK(both.exit_code == 0);
  CHECK(both.out.find("right: ") != both.out.rfind("right: "));
  for (const bool wrong_first : {true, false}) {
    const ProcessResult result =
        run_process({python, script, wrong_first ? wrong : right, wrong_first ? right : wrong});
    CHECK(result.exit_code == 2);
    CHECK(contains(result.out, "WRONG: 8 rows of decode8-rank8 by mutant:scale-twice"));
    CHECK(contains(result.out, "right: 8 rows of decode8-rank8 by cpu"));
  }
}

TEST_CASE("check_export.py tells a column that nobody owns under python -O too") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const std::string wrong = export_case(folder, "mutant:none-is-first-adapter", "wrong");
  const ProcessResult result = run_process({python, "-O", kScripts + "check_export.py", wrong});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "a column that nobody owns has changed"));
}

TEST_CASE("what the scripts of exported cases cannot read is one line that says what to give") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const std::string whole = read_file(export_case(folder, "cpu", "right"));
  const std::string metadata = read_file(folder.path("right/decode8-rank8.json"));
  const std::string cut = folder.write("cut.safetensors", whole.substr(0, whole.size() / 2));
  static_cast<void>(folder.write("cut.json", metadata));
  const std::string lone = folder.write("lone.safetensors", whole);
  const std::string text = folder.write("text.safetensors", "no tensors at all");
  static_cast<void>(folder.write("text.json", metadata));
  for (const std::string& script : {kScripts + "check_export.py", kScripts + "produce_output.py"}) {
    CAPTURE(script);
    std::vector<std::string> command{python, script};
    check_refused(run_process(command), 1, "usage: ");
    command.emplace_back();
    if (contains(script, "produce")) {
      command.push_back(folder.path("got.safetensors"));
    }
    const std::vector<std::pair<std::string, std::string>> files{
        {folder.path("none.safetensors"), "none.safetensors: cannot be read: No such file"},
        {lone, "lone.json: cannot be read: No such file"},
        {cut, "cut.safetensors: not what `lora-bench export` wrote, or cut short"},
        {text, "text.safetensors: not what `lora-bench export` wrote"}};
    for (const auto& [file, sentence] : files) {
      command[2] = file;
      check_refused(run_process(command), 1, sentence);
    }
  }
  const ProcessResult eight_bits =
      run_tool({"export", "smoke/decode8-rank8", "--backends", "cpu", "--to", folder.path("eight"),
                "--set", "weights.dtype=e4m3"});
  REQUIRE(eight_bits.exit_code == 0);
  check_refused(
      run_process({python, kScripts + "produce_output.py",
                   folder.path("eight/decode8-rank8.safetensors"), folder.path("got.safetensors")}),
      1, "a case of weights.dtype: e4m3, weights.scale: channel; this does plain ops");
  check_refused(
      run_process({python, kScripts + "check_export.py", folder.path("right/decode8-rank8.json")}),
      1, "name the tensors beside it");
  check_refused(run_process({python, kScripts + "produce_output.py",
                             folder.path("right/decode8-rank8.safetensors"),
                             folder.path("nowhere/got.safetensors")}),
                5, "cannot be written: No such file");
}

TEST_CASE("every Python script parses") {
  LORA_BENCH_NEED_NUMPY(python);
  const std::filesystem::path scripts = std::filesystem::path(LORA_BENCH_SOURCE_DIR) / "scripts";
  int parsed = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scripts)) {
    if (entry.path().extension() == ".py") {
      CAPTURE(entry.path().string());
      const std::string parse = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
      CHECK(run_process({python, "-c", parse, entry.path().string()}).exit_code == 0);
      ++parsed;
    }
  }
  CHECK(parsed >= 15);
}

TEST_CASE("a command line that makes no sense is no wrong result of the small scripts either") {
  LORA_BENCH_NEED_NUMPY(python);
  check_refused(run_process({python, kScripts + "draw-wide.py", "--points", "x"}), 1,
                "draw-wide.py: argument --points: invalid int value: 'x'");
  check_refused(run_process({python, kScripts + "draw-wide.py", "--points", "0"}), 1,
                "draw-wide.py: --points 0: a scenario has one point at least");
}

TEST_CASE("without NumPy the scripts name the Python that lacks it and how to install for it") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  static_cast<void>(folder.write("numpy.py", "raise ImportError('none')\n"));
  ProcessOptions options;
  options.environment = {{"PYTHONPATH", folder.folder()}, {"PYTHONDONTWRITEBYTECODE", "1"}};
  for (const char* script : {"check_export.py", "produce_output.py"}) {
    CAPTURE(script);
    const ProcessResult result = run_process({python, kScripts + script}, options);
    check_refused(result, 5, " has no NumPy: ");
    CHECK(contains(result.err, " -m pip install numpy, or for the Python of Debian"));
  }
}

TEST_CASE("the check of the clock says which tool it cannot run") {
  LORA_BENCH_NEED_NUMPY(python);
  const std::string script = kScripts + "check-clock.py";
  check_refused(run_process({python, script, "--nonsense"}), 1, "usage: ");
  check_refused(run_process({python, script, "--tool", "/nowhere/lora-bench"}), 1,
                "cannot run /nowhere/lora-bench; name the built lora-bench with --tool");
}

namespace {

// Runs the check of the clock with a tool that writes `rows` and an ncu that prints what a real one
// said of two rows, as `print` gives it: bgmv in one kernel of 12.64 us, auto in two of 8 and 1.5
// us.
ProcessResult run_check_clock(const std::string& python, const TemporaryFolder& folder,
                              const std::string& rows, const std::string& print = "cat") {
  const auto executable = [&](const char* name, const std::string& text) {
    const std::string path = folder.write(name, "#!/bin/sh\n" + text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  };
  const std::string stored = folder.write("stored.jsonl", rows);
  executable("ncu", print + " '" + std::string(LORA_BENCH_SOURCE_DIR) + "/tests/golden/ncu.csv'\n");
  const std::string tool = executable("tool",
                                      "while [ \"$1\" != --out ]; do shift; done\n"
                                      "cp '" +
                                          stored + "' \"$2\"\n");
  ProcessOptions options;
  options.environment["PATH"] = folder.folder() + ":" + std::getenv("PATH");
  return run_process({python, kScripts + "check-clock.py", "--tool", tool}, options);
}

std::string timed_row(const std::string& case_id, const std::string& backend,
                      const std::string& time_us) {
  return R"({"kind":"row","status":"PASSED","case":")" + case_id + R"(","backend":")" + backend +
         R"(","bytes":6290000,"time_us":)" + time_us + "}\n";
}

}  // namespace

TEST_CASE("the check of the clock finds the kernels of a row by its NVTX range, and adds them up") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const std::string context = "{\"kind\":\"context\"}\n";
  const ProcessResult agrees =
      run_check_clock(python, folder,
                      context + timed_row("shrink-qkv-64", "bgmv", "12.9") +
                          timed_row("qkv/decode=8", "auto", "10.4"));
  CAPTURE(agrees.err);
  CHECK(agrees.exit_code == 0);
  CHECK(contains(agrees.out, "| shrink-qkv-64 | bgmv | 1 | 12.90 | 12.64 | +2.1 % | 1.97 | 98 |"));
  CHECK(contains(agrees.out, "| qkv/decode=8 | auto | 2 | 10.40 | 9.50 | +9.5 % | 1.97 | 90 |"));
  const ProcessResult differs =
      run_check_clock(python, folder, context + timed_row("qkv/decode=8", "auto", "10.6"));
  CHECK(differs.exit_code == 3);
  check_refused(run_check_clock(python, folder, context + timed_row("decode=8", "bgmv", "10")), 5,
                "ncu shows no kernel of 'decode=8 bgmv', only 'shrink-qkv-64 bgmv/void ");
}

TEST_CASE("the check of the clock compares no metric that ncu has no value of") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  check_refused(run_check_clock(python, folder, timed_row("shrink-qkv-64", "bgmv", "12.9"),
                                "sed 's|\"%\",\"98.1\"|\"\",\"(!) n/a\"|'"),
                5, "--metrics lts__t_sector_hit_rate.pct ");
}

}  // namespace lora_bench::test
