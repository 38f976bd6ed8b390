#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/process.h"
#include "support/small_scenario.h"

namespace lora_bench::test {
namespace {

namespace fs = std::filesystem;

const std::string kSource = LORA_BENCH_SOURCE_DIR;

// A library from one C file that differs from a usable one by `fault`.
std::string library_with(const TemporaryFolder& folder, const std::string& fault) {
  static const std::string kCode = R"(#include "lora_bench_backend.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int32_t supports(const lora_bench_problem* p, const lora_bench_device* d, char* w, int64_t n) {
  (void)p; (void)d; (void)w; (void)n;
#ifdef EXITS_IN_SUPPORTS
  exit(0);
#endif
  return 0; }
static int32_t launch(const lora_bench_problem* p, const lora_bench_operands* o, void* s, char* e,
                      int64_t n) {
  (void)p; (void)o; (void)s; (void)e; (void)n;
#ifdef EXITS
  exit(0);
#elif defined(EXITS_AT_ONCE)
  _Exit(0);
#elif defined(EXITS_QUICKLY)
  quick_exit(0);
#elif defined(CRASHES)
  abort();
#elif defined(PRINTS)
  printf("a line of the kernel\n");
#elif defined(PRINTS_AND_CRASHES)
  printf("a line of the kernel\n");
  abort();
#elif defined(PRINTS_HALF_A_LINE)
  printf("a word of the kernel");
#elif defined(CLEARS_RANKS)
  for (int64_t i = 0; i < p->slots; ++i) ((int64_t*)p->rank)[i] = 0;
#endif
  return 0; }
#ifdef SHORT_STRUCT
#define SIZE 16
#else
#define SIZE sizeof(lora_bench_descriptor)
#endif
#ifdef OTHER_ABI
#define ABI 999
#else
#define ABI LORA_BENCH_BACKEND_ABI
#endif
#ifdef NULL_LAUNCH
#define LAUNCH 0
#else
#define LAUNCH launch
#endif
#ifdef OTHER_SPACE
#define SPACE 7
#else
#define SPACE LORA_BENCH_HOST
#endif
static void numerics(const lora_bench_problem* p, lora_bench_numerics* n) {
  (void)p;
#ifdef OTHER_DTYPE
  n->partial = 99;
#endif
#ifdef PROMISES_NOTHING
  n->shrink_depth = 1000000000;
#endif
  (void)n;
}
static const lora_bench_descriptor descriptor = {
    ABI, SIZE, "bad", "bad", SPACE, 0, supports, numerics, 0, LAUNCH, 0, 0, 0, 0, 0, 0, 0, 0, 0};
#ifdef STAYS
__attribute__((destructor)) static void stay(void) { for (;;) pause(); }
#endif
#ifdef ANOTHER
const int another_build = 1;
#endif
#ifdef NO_SYMBOL
const void* another_symbol(void) { return &descriptor; }
#elif defined(NO_DESCRIPTOR)
const lora_bench_descriptor* lora_bench_backend(void) { (void)descriptor; return 0; }
#elif defined(HANGS_AT_LOAD)
__attribute__((constructor)) static void hang(void) { for (;;) {} }
const lora_bench_descriptor* lora_bench_backend(void) { return &descriptor; }
#elif defined(CRASHES_AT_LOAD)
const lora_bench_descriptor* lora_bench_backend(void) {
  (void)descriptor; *(volatile int*)0 = 1; return 0; }
#else
const lora_bench_descriptor* lora_bench_backend(void) { return &descriptor; }
#endif
)";
  const std::string source = folder.write(fault + ".c", kCode);
  const std::string library = folder.path("lib" + fault + ".so");
  const ProcessResult built = run_process(
      {"cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-pedantic",
       "-D" + fault, "-shared", "-fPIC", "-I" + kSource + "/include", "-o", library, source});
  REQUIRE_MESSAGE(built.exit_code == 0, built.err);
  return library;
}

// The plugin of the example, `whole()`, but for what `change` of this code makes of it.
std::string right_but_for(const TemporaryFolder& folder, const std::string& change) {
  const std::string library = folder.path("libchanged.so");
  const std::string source = folder.write(
      "changed.cpp", "#define lora_bench_backend whole\n#include \"" + kSource +
                         "/examples/plugin/mine.cpp\"\n#undef lora_bench_backend\n" + change + R"(
extern "C" const lora_bench_descriptor* lora_bench_backend(void) {
  static lora_bench_descriptor d = *whole();
  change(&d);
  return &d;
}
)");
  const ProcessResult built = run_process({"c++", "-std=c++20", "-O2", "-shared", "-fPIC",
                                           "-I" + kSource + "/include", "-o", library, source});
  REQUIRE_MESSAGE(built.exit_code == 0, built.err);
  return library;
}

ProcessResult run_smoke(const std::string& backends, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"run",       "smoke",      "--case", "decode8-rank8",
                                     "--no-time", "--backends", backends};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_tool(arguments);
}

struct Command {
  std::string text;
  int exit_code = 0;
};

// The ```sh lines of the page, "# exit 2" beside what is to fail; what needs nvcc or a GPU is left
// to those who have one.
std::vector<Command> commands_of_page() {
  std::istringstream page(read_file(kSource + "/docs/your-kernel.md"));
  std::vector<Command> commands;
  bool in_commands = false;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("```", 0) == 0) {
      in_commands = line == "```sh";
    } else if (in_commands && !contains(line, "minecuda") && line.rfind("cd ", 0) != 0) {
      const std::size_t exit = line.find("# exit ");
      commands.push_back({line.substr(0, line.find("  #")),
                          exit == std::string::npos ? 0 : std::stoi(line.substr(exit + 7))});
    }
  }
  return commands;
}

TEST_CASE("a plugin that cannot be used is refused before any work, with what to do") {
  const TemporaryFolder folder;
  const std::vector<std::pair<const char*, const char*>> faults{
      {"OTHER_ABI", "version 999 of the interface"},
      {"SHORT_STRUCT", "'struct_size' of its descriptor is 16"},
      {"NULL_LAUNCH", "'launch' of its descriptor is NULL"},
      {"OTHER_SPACE", "'space' of its descriptor is 7"},
      {"NO_SYMBOL", "exports no function 'lora_bench_backend'"},
      {"NO_DESCRIPTOR", "returned NULL"},
  };
  for (const auto& [fault, message] : faults) {
    const std::string library = library_with(folder, fault);
    const bool isolated = std::string(fault) == "OTHER_ABI";
    const ProcessResult result =
        run_smoke(library + ",cpu",
                  isolated ? std::vector<std::string>{"--isolate"} : std::vector<std::string>{});
    CAPTURE(result.err);
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, message));
    CHECK(result.out.empty());
  }
  CHECK(contains(run_smoke("./missing.so").err, "there is no such file"));
  CHECK(
      contains(run_smoke("mine=" + folder.write("text.so", "no library")).err, "cannot be loaded"));
  CHECK(contains(run_smoke("cpu=" + folder.path("text.so")).err, "give it another name"));
}

TEST_CASE("a plugin that declares what cannot be, or does nothing, costs its own row alone") {
  const TemporaryFolder folder;
  const std::string dtype = library_with(folder, "OTHER_DTYPE");
  const std::string vague = library_with(folder, "PROMISES_NOTHING");
  const std::string idle = library_with(folder, "IDLE");
  const ProcessResult result = run_smoke(dtype + "," + vague + "," + idle + ",cpu");
  CAPTURE(result.out);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "numerics declares partial = 99"));
  CHECK(contains(result.out, "numerics declares shrink_depth = 1000000000"));
  CHECK(contains(result.out, "4 rows: 1 PASSED, 1 FAILED, 2 ERROR"));
}

TEST_CASE("a plugin cannot change what it is judged by") {
  const TemporaryFolder folder;
  // It does nothing, which is right for adapters of rank 0.
  const ProcessResult result = run_smoke(library_with(folder, "CLEARS_RANKS"));
  CAPTURE(result.out);
  CHECK(result.exit_code == 2);
}

TEST_CASE("a phase is timed only where it is right by itself") {
  const TemporaryFolder folder;
  // The whole op is right, shrink asked alone does nothing.
  const std::string library = right_but_for(folder, R"(
static int32_t half(const lora_bench_problem* p, const lora_bench_operands* o, void* s, char* e,
                    int64_t n) {
  return p->op == LORA_BENCH_SHRINK ? 0 : whole()->launch(p, o, s, e, n);
}
static void change(lora_bench_descriptor* d) { d->launch = half; }
)");
  const std::vector<std::string> run{"run",        "smoke", "--case", "decode8-rank8",
                                     "--backends", library, "--set",  "measure.phases=true"};
  const ProcessResult result = run_tool(run);
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "shrink alone: "));
}

TEST_CASE("a row without the phases that were asked for says why") {
  const TemporaryFolder folder;
  const std::string library = right_but_for(folder, R"(
static int32_t whole_only(const lora_bench_problem* p, const lora_bench_device* d, char* why,
                          int64_t n) {
  const char* sentence = "only fused";
  if (p->op == LORA_BENCH_LINEAR) return whole()->supports(p, d, why, n);
  while ((*why++ = *sentence++)) {}
  return 1;
}
static void change(lora_bench_descriptor* d) { d->supports = whole_only; }
)");
  const std::string rows = folder.path("rows.jsonl");
  const ProcessResult result = run_tool({"run", "smoke", "--case", "decode8-rank8", "--backends",
                                         library, "--set", "measure.phases=true", "--out", rows});
  CAPTURE(result.err);
  CHECK(contains(read_file(rows), "no phases: shrink alone is not supported: only fused"));
}

TEST_CASE("a declaration that changes once the proof has begun is an error") {
  const TemporaryFolder folder;
  // Asked first and before timing.
  const std::string library = right_but_for(folder, R"(
static void later_loose(const lora_bench_problem* p, lora_bench_numerics* n) {
  static int asked;
  whole()->numerics(p, n);
  if (++asked > 1) n->unit_roundoff = 0x1p-12;
}
static void change(lora_bench_descriptor* d) { d->numerics = later_loose; }
)");
  const ProcessResult result =
      run_tool({"run", "smoke", "--case", "decode8-rank8", "--backends", library});
  CAPTURE(result.out);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "numerics declared another thing when it was asked again"));
}

TEST_CASE("a declaration so loose that launches can be left out is no pass") {
  const TemporaryFolder folder;
  const std::string library = right_but_for(folder, R"(
static int32_t every_second(const lora_bench_problem* p, const lora_bench_operands* o, void* s,
                            char* e, int64_t n) {
  static int launches;
  return ++launches > 20 && launches % 2 == 0 ? 0 : whole()->launch(p, o, s, e, n);
}
static void loose(const lora_bench_problem*, lora_bench_numerics* n) { n->unit_roundoff = 0x1p-8; }
static void change(lora_bench_descriptor* d) { d->launch = every_second; d->numerics = loose; }
)");
  const ProcessResult result =
      run_tool({"run", "smoke", "--case", "decode8-rank8", "--backends", library});
  CAPTURE(result.out);
  CAPTURE(result.err);
  CHECK(result.exit_code == 4);
  CHECK(contains(result.out, "MISTRUSTED"));
  CHECK(contains(result.out, "declare numerics no looser than the kernel is"));
}

TEST_CASE("fuzz writes what is MISTRUSTED as drawn, with the command that shows it again") {
  const TemporaryFolder folder;
  const std::string library = right_but_for(folder, R"(
static void loose(const lora_bench_problem*, lora_bench_numerics* n) { n->unit_roundoff = 0x1p-8; }
static void change(lora_bench_descriptor* d) { d->numerics = loose; }
)");
  const ProcessResult result = run_tool({"fuzz", "--quick", "--cases", "60", "--max-failures", "2",
                                         "--backends", library, "--out", folder.path("found")});
  CAPTURE(result.out);
  CHECK(result.exit_code == 4);
  static const std::regex kTold(
      "MISTRUSTED changed on case [0-9]+: [^\n]*\n  as drawn"
      "\n  again: lora-bench (verify [^\n]*)");
  std::vector<std::string> again;
  for (std::sregex_iterator at(result.out.begin(), result.out.end(), kTold), end; at != end; ++at) {
    again.push_back((*at)[1].str());
  }
  REQUIRE(again.size() == 2);  // no more files than --max-failures
  const ProcessResult once_more = run_tool_in_shell(tool_path() + " " + again.front());
  CHECK(once_more.exit_code == 4);
  CHECK(contains(once_more.out, "MISTRUSTED"));
}

TEST_CASE("a plugin that ends the program is no pass, and its message says what is to do") {
  const TemporaryFolder folder;
  const std::vector<std::pair<const char*, const char*>> ends{
      {"EXITS", "exit code 0 in launch"},
      {"EXITS_AT_ONCE", "exit code 0 in launch"},
      {"EXITS_QUICKLY", "exit code 0 in launch"},
      {"CRASHES", "signal 6 (Aborted) in launch"},
      {"EXITS_IN_SUPPORTS", "exit code 0 in supports"},
      {"CRASHES_AT_LOAD", "in loading"},
  };
  for (const auto& [fault, how] : ends) {
    const std::string library = library_with(folder, fault);
    const ProcessResult result = run_smoke(library);
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, how));
    CHECK(contains(result.err, library));
    CHECK(contains(result.err, "--isolate"));
  }
  const std::string library = folder.path("libEXITS.so");
  const std::string rows = folder.path("rows.csv");
  const ProcessResult verified =
      run_tool({"verify", "smoke", "--backends", "cpu," + library, "--out", rows});
  CHECK(verified.exit_code == 2);
  CHECK(contains(verified.err, "Finished rows are in the .jsonl and .csv files of --out"));
  CHECK(contains(read_file(rows), ",cpu,"));
  const ProcessResult planned =
      run_tool({"plan", "smoke", "--backends", folder.path("libEXITS_IN_SUPPORTS.so")});
  CHECK(planned.exit_code == 2);
  CHECK(contains(planned.err, "in supports; the work ends here\n"));
  CHECK(run_tool({"export", "smoke/decode8-rank8", "--backends", library, "--to", folder.folder()})
            .exit_code == 2);
}

TEST_CASE("a plugin that never lets the program end costs neither rows nor the exit code") {
  const TemporaryFolder folder;
  const std::string rows = folder.path("rows.jsonl");
  const ProcessResult result = run_smoke(library_with(folder, "STAYS") + ",cpu", {"--out", rows});
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);  // it computes nothing
  CHECK(contains(result.out, "FAILED"));
  CHECK(
      contains(result.err, "did not leave within 10 s of its end, with the work done and written"));
  CHECK(contains(read_file(rows), "\"backend\":\"cpu\""));
}

TEST_CASE("a run with a plugin that is interrupted still gives its table") {
  const TemporaryFolder folder;
  std::string seeds = "1";
  for (int seed = 2; seed <= 100; ++seed) {
    seeds += ", " + std::to_string(seed);
  }
  const std::string file =
      folder.write("long.yaml", small_scenario("sweep: {product: {seed: [" + seeds + "]}}\n"));
  const std::string rows = folder.path("rows.jsonl");
  ProcessOptions options;
  options.signal = SIGINT;
  options.signal_when_filled = rows;
  const ProcessResult cut = run_tool(
      {"run", file, "--backends", library_with(folder, "IDLE") + ",cpu", "--out", rows}, options);
  CAPTURE(cut.err);
  CHECK(cut.exit_code == 2);  // IDLE is wrong
  CHECK(contains(cut.out, "PASSED"));
  CHECK(contains(cut.err, "interrupted; go on with: "));
  CHECK_FALSE(contains(cut.err + read_file(rows), "--supervised"));
}

TEST_CASE("a plugin that crashes while it is loaded costs its rows alone when isolated") {
  const TemporaryFolder folder;
  const ProcessResult result =
      run_smoke(library_with(folder, "CRASHES_AT_LOAD") + ",cpu", {"--isolate"});
  CAPTURE(result.out);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "in loading"));
  CHECK(contains(result.out, "2 rows: 1 PASSED, 1 ERROR"));
  CHECK(contains(result.out, " --isolate\n"));
}

TEST_CASE(
    "a plugin that hangs while it is loaded is told, and costs its rows alone when isolated") {
  const TemporaryFolder folder;
  const std::string library = library_with(folder, "HANGS_AT_LOAD");
  const std::vector<std::string> soon{"--set", "verify.timeout_s=0.2"};
  const ProcessResult alone = run_smoke(library + ",cpu", soon);
  CAPTURE(alone.err);
  CHECK(alone.exit_code == 2);
  CHECK(contains(alone.err, library + ": loading did not return within 0.2 s"));
  const ProcessResult isolated = run_smoke(library + ",cpu", {"--isolate", soon[0], soon[1]});
  CAPTURE(isolated.out);
  CHECK(isolated.exit_code == 2);
  CHECK(contains(isolated.out, "loading did not return within 0.2 s"));
  CHECK(contains(isolated.out, "2 rows: 1 PASSED, 1 HUNG"));
  const ProcessResult exported = run_tool({"export", "smoke/decode8-rank8", "--backends", library,
                                           "--to", folder.folder(), soon[0], soon[1]});
  CHECK(exported.exit_code == 2);
  const ProcessResult fuzzed = run_tool({"fuzz", "--backends", library, "--cases", "3", "--timeout",
                                         "0.2", "--out", folder.folder()});
  CAPTURE(fuzzed.out);
  CHECK(fuzzed.exit_code == 2);
  CHECK(contains(fuzzed.out, "hung: left out of the rest"));
}

TEST_CASE("what an isolated kernel prints is on standard error") {
  const TemporaryFolder folder;
  for (const auto& entry : std::vector<std::pair<const char*, const char*>>{
           {"PRINTS", "a line of the kernel\n"},
           {"PRINTS_AND_CRASHES", "a line of the kernel\n"},
           {"PRINTS_HALF_A_LINE", "a word of the kernel"}}) {
    const char* const fault = entry.first;
    const char* const printed = entry.second;
    CAPTURE(fault);
    const ProcessResult result = run_smoke(library_with(folder, fault), {"--isolate"});
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, printed));
    CHECK(!contains(result.out, "of the kernel"));
  }
}

TEST_CASE("a row that hung is run again as it was, isolated") {
  const ProcessResult result =
      run_smoke("fake:hang,cpu", {"--isolate", "--set", "verify.timeout_s=0.2"});
  CAPTURE(result.out);
  CHECK(result.exit_code == 2);
  CHECK(contains(result.out, "HUNG"));
  CHECK(contains(result.out, " --isolate\n"));
}

TEST_CASE("what ends a process costs a row when isolated, and the run when nothing else works") {
  const ProcessResult beside = run_smoke("fake:lost,cpu", {"--isolate"});
  CAPTURE(beside.out);
  CHECK(beside.exit_code == 2);
  CHECK(contains(beside.out, "2 rows: 1 PASSED, 1 ERROR"));
  const ProcessResult alone =
      run_tool({"run", "smoke", "--no-time", "--isolate", "--backends", "fake:lost"});
  CHECK(alone.exit_code == 5);
  CHECK(contains(alone.err, "says that its device is lost"));
}

TEST_CASE("isolated rows are those of one process") {
  const TemporaryFolder folder;
  const std::string apart = folder.path("apart.csv");
  const std::string together = folder.path("together.csv");
  REQUIRE(run_smoke("cpu,fake:wrong", {"--out", together}).exit_code == 2);
  REQUIRE(run_smoke("cpu,fake:wrong", {"--isolate", "--out", apart}).exit_code == 2);
  const auto without_wall_time = [](const std::string& file) {
    return std::regex_replace(read_file(file), std::regex(",[0-9.e-]+,lora-bench"), ",lora-bench");
  };
  CHECK(without_wall_time(apart) == without_wall_time(together));
}

TEST_CASE("rows that are proved side by side are those of one process, in the same order") {
  const TemporaryFolder folder;
  const auto rows_with = [&](const std::string& jobs) {
    const std::string file = folder.path("jobs" + jobs + ".csv");
    const ProcessResult result = run_tool({"verify", "smoke", "--quiet", "--backends",
                                           "cpu,fake:wrong", "--jobs", jobs, "--out", file});
    CHECK(result.exit_code == 2);
    const std::string rows =
        std::regex_replace(read_file(file), std::regex(",[0-9.e-]+,lora-bench"), ",lora-bench");
    return std::regex_replace(rows, std::regex("--jobs [0-9]+|jobs[0-9]+.csv"), "");
  };
  const std::string one = rows_with("1");
  CHECK(contains(one, "FAILED"));
  CHECK(contains(one, "PASSED"));
  CHECK(rows_with("3") == one);
}

TEST_CASE("what hangs or ends its process costs a row where rows are proved side by side") {
  const std::vector<std::string> line{"verify",    "smoke", "--quick", "--quiet",
                                      "--jobs",    "2",     "--set",   "verify.timeout_s=0.2",
                                      "--backends"};
  const auto of = [&](const char* backends) {
    std::vector<std::string> whole = line;
    whole.emplace_back(backends);
    return run_tool(whole);
  };
  const ProcessResult hung = of("fake:hang,cpu");
  CAPTURE(hung.out);
  CHECK(hung.exit_code == 2);
  CHECK(contains(hung.out, "HUNG"));
  CHECK(contains(hung.out, "PASSED"));
  const ProcessResult lost = of("fake:lost");
  CHECK(lost.exit_code == 5);
  CHECK(contains(lost.err, "says that its device is lost"));
  const TemporaryFolder folder;
  const ProcessResult crashed = of((library_with(folder, "CRASHES") + ",cpu").c_str());
  CAPTURE(crashed.out);
  CHECK(crashed.exit_code == 2);
  CHECK(contains(crashed.out, "crashed: signal 6 (Aborted) in launch"));
  CHECK(contains(crashed.out, "PASSED"));
}

TEST_CASE("rows of another build of a plugin are not resumed") {
  const TemporaryFolder folder;
  const std::string first = library_with(folder, "IDLE");
  const std::string rows = folder.path("rows.jsonl");
  CHECK(run_smoke("mine=" + first, {"--resume", rows}).exit_code == 2);
  CHECK(run_smoke("mine=" + first, {"--resume", rows}).exit_code == 2);
  const ProcessResult other =
      run_smoke("mine=" + library_with(folder, "ANOTHER"), {"--resume", rows});
  CHECK(other.exit_code == 1);
  CHECK(contains(other.err, "give it another name"));
}

TEST_CASE("plan and export take a plugin too") {
  const TemporaryFolder folder;
  const std::string library = library_with(folder, "IDLE");
  const ProcessResult plan = run_tool({"plan", "smoke", "--backends", library});
  CHECK(plan.exit_code == 0);
  CHECK(contains(plan.out, "IDLE"));
  REQUIRE(
      run_tool({"export", "smoke/decode8-rank8", "--backends", library, "--to", folder.folder()})
          .exit_code == 0);
  const std::string exported = folder.path("decode8-rank8.safetensors");
  CHECK(run_tool({"check", exported, "--output", exported}).exit_code == 2);
}

// Not of the sanitized tool, as the commands of the README.
TEST_CASE("the commands of docs/your-kernel.md do what it says") {
  const TemporaryFolder folder;
  fs::create_directories(folder.path("examples"));
  fs::create_directories(folder.path("include"));
  fs::copy(kSource + "/examples/plugin", folder.path("examples/plugin"));
  fs::remove(folder.path("examples/plugin/libmine.so"));
  fs::copy(kSource + "/include/lora_bench_backend.h", folder.path("include/lora_bench_backend.h"));
  ProcessOptions options;
  options.folder = folder.path("examples/plugin");
  options.environment = {{"PATH", fs::path(tool_path()).parent_path().string() + ":" +
                                      std::string(std::getenv("PATH"))},
                         {"XDG_CACHE_HOME", LORA_BENCH_TEST_CACHE},
                         {"LORA_BENCH_SCENARIOS", kSource + "/scenarios"}};
  std::string all;
  for (const Command& command : commands_of_page()) {
    const ProcessResult result = run_process({"sh", "-c", command.text}, options);
    CAPTURE(command.text);
    CAPTURE(result.out);
    CAPTURE(result.err);
    CHECK(result.exit_code == command.exit_code);
    all += result.out;
  }
  for (const char* told : {"lost-k-tail", "mine refuses 3 slices", "no room for 8 tokens",
                           "did not return within 1 s", "in launch", "sha256:", "old", "new"}) {
    CHECK_MESSAGE(contains(all, told), told);
  }
}

}  // namespace
}  // namespace lora_bench::test
