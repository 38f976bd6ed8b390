#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "support/process.h"

namespace lora_bench::test {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> scenarios_in(const TemporaryFolder& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.folder())) {
    if (entry.path().extension() == ".yaml") {
      files.push_back(entry.path());
    }
  }
  return files;
}

ProcessResult fuzz(const TemporaryFolder& folder, std::vector<std::string> arguments,
                   const ProcessOptions& options = {}) {
  arguments.insert(arguments.begin(), "fuzz");
  arguments.insert(arguments.end(), {"--out", folder.folder()});
  return run_tool(arguments, options);
}

// Every command that a failure was told with.
std::vector<std::string> commands_again(const std::string& text) {
  static const std::regex kAgain("again: lora-bench (.*)");
  std::vector<std::string> commands;
  for (std::sregex_iterator at(text.begin(), text.end(), kAgain), end; at != end; ++at) {
    commands.push_back(tool_path() + " " + (*at)[1].str());
  }
  return commands;
}

TEST_CASE("fuzz: no false alarm of the host backend in thousands of random cases") {
  const TemporaryFolder folder;
  const std::string cases = tool_is_sanitized() ? "250" : "2000";
  const ProcessResult result = fuzz(folder, {"--backends", "cpu", "--cases", cases});
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "seed 1: " + cases + " of "));
  CHECK(contains(result.out, "0 failures; exit 0 (pass)"));
  CHECK(scenarios_in(folder).empty());
}

TEST_CASE("fuzz: faults are found in 300 cases, made tiny, and fail again by the command told") {
  std::vector<std::string> faults{"lost-k-tail-1",  "lost-k-tail-32",       "rank-lane-lost",
                                  "slices-swapped", "x-stride-ignored",     "bias-forgotten",
                                  "scale-twice",    "offset-start-ignored", "none-is-first-adapter",
                                  "h-not-zeroed",   "row-too-many",         "order-varies-by-run"};
  if (tool_is_sanitized()) {
    faults.resize(3);
  }
  for (const std::string& fault : faults) {
    CAPTURE(fault);
    const TemporaryFolder folder;
    const ProcessResult result =
        fuzz(folder, {"--backends", "mutant:" + fault, "--cases", "300", "--max-failures", "1"});
    CAPTURE(result.out);
    CHECK(result.exit_code == 2);
    const std::vector<std::string> commands = commands_again(result.out);
    REQUIRE(commands.size() == 1);
    REQUIRE(scenarios_in(folder).size() == 1);
    const std::string text = read_file(scenarios_in(folder).front().string());
    CAPTURE(text);
    CHECK(contains(text, "# mutant:" + fault + " FAILED: "));
    CHECK(contains(text, "# again: lora-bench verify "));
    CHECK(std::regex_search(text, std::regex("rank: \\[?[0-9]{1,2}\\]")));
    CHECK(
        std::regex_search(text, std::regex("layer: \\{in: [0-9]{1,3}, out: \\[[0-9, ]{1,16}\\]")));
    CHECK(std::regex_search(text, std::regex("decode: [0-9][,}]")));
    const ProcessResult again = run_tool_in_shell(commands.front());
    CHECK(again.exit_code == 2);
    CHECK(contains(again.out, "FAILED fuzz-1-"));
    CHECK(run_tool({"run", scenarios_in(folder).front().string()}).exit_code == 2);
  }
}

TEST_CASE("fuzz: the same seed draws the same cases whatever the backends") {
  const TemporaryFolder one;
  const TemporaryFolder both;
  const std::string cases = tool_is_sanitized() ? "6" : "20";
  const std::vector<std::string> rest{"--cases", cases, "--seed", "9", "--max-failures", "2"};
  std::vector<std::string> alone{"--backends", "mutant:lost-k-tail-1"};
  std::vector<std::string> beside{"--backends", "mutant:none,mutant:lost-k-tail-1"};
  alone.insert(alone.end(), rest.begin(), rest.end());
  beside.insert(beside.end(), rest.begin(), rest.end());
  const ProcessResult found = fuzz(one, alone);
  CHECK(found.exit_code == 2);
  CHECK(commands_again(found.out).size() == 2);
  CHECK(fuzz(both, beside).exit_code == 2);
  REQUIRE(scenarios_in(one).size() == 1);  // both failures are one case when made small
  CHECK(scenarios_in(both).size() == 1);
  for (const fs::path& file : scenarios_in(one)) {
    const std::string other = read_file(both.path(file.filename().string()));
    CHECK(
        contains(other, read_file(file.string()).substr(read_file(file.string()).find("\nname:"))));
  }
}

TEST_CASE("fuzz: failures that are one case when made small are written once") {
  const TemporaryFolder folder;
  const ProcessResult result = fuzz(folder, {"--backends", "mutant:lost-k-tail-1", "--cases", "20",
                                             "--seed", "9", "--max-failures", "3", "--quick"});
  CHECK(result.exit_code == 2);
  CHECK(commands_again(result.out).size() == 3);
  CHECK(contains(result.out, "which is the case of fuzz-9-"));
  std::set<std::string> cases;
  for (const fs::path& file : scenarios_in(folder)) {
    const std::string text = read_file(file.string());
    cases.insert(text.substr(text.find("\nop:")));
  }
  CHECK(cases.size() == scenarios_in(folder).size());
}

TEST_CASE("fuzz: what an earlier run found stays beside what a later one finds") {
  const TemporaryFolder folder;
  const std::vector<std::string> arguments{"--backends", "mutant:lost-k-tail-1", "--cases",
                                           "20",         "--max-failures",       "1"};
  CHECK(fuzz(folder, arguments).exit_code == 2);
  REQUIRE(scenarios_in(folder).size() == 1);
  const fs::path first = scenarios_in(folder).front();
  const std::string kept = read_file(first.string());
  const ProcessResult again = fuzz(folder, arguments);
  CHECK(scenarios_in(folder).size() == 2);
  CHECK(read_file(first.string()) == kept);
  CHECK(contains(again.out, first.stem().string() + "-2.yaml"));
}

TEST_CASE("fuzz: exit 1 for what makes no sense, 4 when nothing was proved") {
  const TemporaryFolder folder;
  CHECK(fuzz(folder, {"--backends", "cqu"}).exit_code == 1);
  CHECK(fuzz(folder, {"--backends", "cpu,cpu"}).exit_code == 1);
  CHECK(fuzz(folder, {"--cases", "0"}).exit_code == 1);
  CHECK(fuzz(folder, {"--seed", "-1"}).exit_code == 1);
  const ProcessResult skipped = fuzz(folder, {"--backends", "fake:unsupported", "--cases", "3"});
  CHECK(skipped.exit_code == 4);
  CHECK(contains(skipped.out, "\nSKIPPED on fake:unsupported: 3 cases: "));
}

TEST_CASE("fuzz: a crash, a hang and a lost device are failures like others, and others go on") {
  const TemporaryFolder folder;
  const ProcessResult result =
      fuzz(folder, {"--backends", "fake:crash,fake:hang,fake:lost,mutant:none", "--timeout", "3",
                    "--cases", "20", "--max-failures", "2"});
  CAPTURE(result.out);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "ERROR fake:crash on case 0: crashed: signal 6 (Aborted) in launch"));
  CHECK(contains(result.out, "HUNG fake:hang on case 0"));
  CHECK(contains(result.out, "ERROR fake:lost on case 1"));
  CHECK(std::regex_search(result.out, std::regex("mutant:none +20 +20 ")));
  const std::vector<std::string> commands = commands_again(result.out);
  REQUIRE(commands.size() == 5);
  for (const std::string& command : commands) {
    CAPTURE(command);
    CHECK(run_tool_in_shell(command).exit_code == 2);
  }
}

TEST_CASE("fuzz: a crash is charged to the backend at work, whichever turn it has") {
  std::vector<std::string> orders{"fake:crash,mutant:none,cpu", "cpu,fake:crash,mutant:none",
                                  "mutant:none,cpu,fake:crash"};
  if (tool_is_sanitized()) {
    orders.resize(1);
  }
  for (const std::string& order : orders) {
    CAPTURE(order);
    const TemporaryFolder folder;
    const ProcessResult result =
        fuzz(folder, {"--backends", order, "--cases", "10", "--max-failures", "3", "--quick"});
    CAPTURE(result.out);
    CHECK(result.exit_code == 2);
    CHECK(std::regex_search(result.out, std::regex("fake:crash +3 +0 +0 +0 +3 ")));
    CHECK(std::regex_search(result.out, std::regex("mutant:none +10 +10 +0 +0 +0")));
    CHECK(std::regex_search(result.out, std::regex("cpu +10 +10 +0 +0 +0")));
    CHECK(scenarios_in(folder).size() == 3);
    for (const fs::path& file : scenarios_in(folder)) {
      CHECK(contains(read_file(file.string()), "# fake:crash ERROR: crashed: signal 6"));
    }
  }
}

// The processes that a fuzz had when it wrote its first failure.
int processes_of_fuzz(const std::string& backends) {
  const TemporaryFolder folder;
  const ProcessResult result =
      run_tool_in_shell(tool_path() + " fuzz --quick --quiet --seed 1 --cases 1000000 --backends " +
                        backends + " --out " + folder.folder() +
                        " >/dev/null 2>&1 & pid=$!; until [ -e " + folder.path("fuzz-1-2.yaml") +
                        " ]; do kill -0 $pid || exit 1; done;"
                        " wc -w </proc/$pid/task/$pid/children; kill -INT $pid; wait $pid; true");
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  return std::stoi(result.out);
}

TEST_CASE("fuzz: one process for the backends of the program, one for each plugin") {
  CHECK(processes_of_fuzz("cpu,mutant:none,mutant:lost-k-tail-1") == 1);
  const TemporaryFolder folder;
  const std::string library = folder.path("libmine.so");
  const std::string source = LORA_BENCH_SOURCE_DIR;
  const ProcessResult built =
      run_process({"c++", "-std=c++20", "-shared", "-fPIC", "-I" + source + "/include", "-o",
                   library, source + "/examples/plugin/mine.cpp"});
  REQUIRE_MESSAGE(built.exit_code == 0, built.err);
  CHECK(processes_of_fuzz("cpu,one=" + library + ",two=" + library + ",mutant:lost-k-tail-1") == 3);
}

TEST_CASE("fuzz: a plugin is found out, with a command that names it") {
  const TemporaryFolder folder;
  const std::string library = folder.path("lib mine.so");
  const std::string source = LORA_BENCH_SOURCE_DIR;
  const ProcessResult built = run_process({"c++", "-std=c++20", "-shared", "-fPIC",
                                           "-DMINE_LOSES_K_TAIL", "-I" + source + "/include", "-o",
                                           library, source + "/examples/plugin/mine.cpp"});
  REQUIRE_MESSAGE(built.exit_code == 0, built.err);
  const ProcessResult result =
      fuzz(folder, {"--backends", "theirs=" + library, "--cases", "100", "--max-failures", "1"});
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "FAILED theirs on case "));
  const std::vector<std::string> commands = commands_again(result.out);
  REQUIRE(commands.size() == 1);
  CHECK(run_tool_in_shell(commands.front()).exit_code == 2);
}

TEST_CASE("fuzz: a kernel that fails otherwise in a fresh process is shown as it fails there") {
  const TemporaryFolder folder;
  const std::string library = folder.path("libwarm.so");
  const std::string source = LORA_BENCH_SOURCE_DIR;
  // The first process that launches it gets nothing written, all others are ended.
  const std::string code =
      folder.write("warm.cpp", "#define lora_bench_backend whole\n#include \"" + source +
                                   "/examples/plugin/mine.cpp\"\n#undef lora_bench_backend\n" + R"(
#include <cstdio>
#include <cstdlib>
static int32_t warm(const lora_bench_problem*, const lora_bench_operands*, void*, char*, int64_t) {
  static const bool first = [] {
    std::FILE* file = std::fopen(SEEN, "wx");
    return file != nullptr && std::fclose(file) == 0;
  }();
  if (!first) std::abort();
  return 0;
}
extern "C" const lora_bench_descriptor* lora_bench_backend(void) {
  static lora_bench_descriptor d = *whole();
  d.launch = warm;
  return &d;
}
)");
  const ProcessResult built = run_process({"c++", "-std=c++20", "-shared", "-fPIC",
                                           "-DSEEN=\"" + folder.path("seen") + "\"",
                                           "-I" + source + "/include", "-o", library, code});
  REQUIRE_MESSAGE(built.exit_code == 0, built.err);
  const ProcessResult result =
      fuzz(folder, {"--backends", library, "--cases", "100", "--max-failures", "1", "--quick"});
  CAPTURE(result.out);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "FAILED warm on case "));
  CHECK(contains(result.out,
                 "the second time, in a process that ran nothing before, it crashed: signal 6"));
  CHECK(contains(result.out, "; made smaller in "));
  REQUIRE(scenarios_in(folder).size() == 1);
  CHECK(contains(read_file(scenarios_in(folder).front().string()), "# warm ERROR: crashed: "));
  const std::vector<std::string> commands = commands_again(result.out);
  REQUIRE(commands.size() == 1);
  CHECK(contains(commands.front(), " --isolate"));
  CHECK(run_tool_in_shell(commands.front()).exit_code == 2);
}

TEST_CASE("fuzz: exit 5 when the machine is to blame for all, or nothing can be written") {
  const TemporaryFolder folder;
  CHECK(fuzz(folder, {"--backends", "fake:lost", "--cases", "20"}).exit_code == 5);
  CHECK(run_tool({"fuzz", "--cases", "3", "--out", "/proc/no-such-place"}).exit_code == 5);
}

TEST_CASE("fuzz: an interrupt and a time limit end it with what was found") {
  const TemporaryFolder folder;
  ProcessOptions options;
  options.signal = SIGINT;
  options.signal_when_filled = folder.path("fuzz-1-2.yaml");
  options.filled_bytes = 0;
  const ProcessResult cut =
      fuzz(folder, {"--backends", "cpu,mutant:lost-k-tail-1", "--cases", "1000000"}, options);
  CHECK(cut.signal == 0);
  CHECK(cut.exit_code == 2);
  CHECK(contains(cut.out, "interrupted"));
  CHECK(contains(cut.out, "fuzz-1-2.yaml"));
  const ProcessResult limited =
      fuzz(folder, {"--backends", "cpu", "--cases", "1000000", "--time-limit", "0.2"});
  CHECK(limited.exit_code == 0);
  CHECK(contains(limited.out, "the time limit of 0.2 s ended it"));
}

}  // namespace
}  // namespace lora_bench::test
