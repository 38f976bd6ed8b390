#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/need_numpy.h"
#include "support/process.h"

namespace lora_bench::test {
namespace {

const std::string kDram = "dram__throughput.avg.pct_of_peak_sustained_elapsed";
const std::string kTensor = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
const std::string kTensorIssued = "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed";

std::string wait_metric(const std::string& wait) {
  return "smsp__average_warps_issue_stalled_" + wait + "_per_issue_active.ratio";
}

// A line of what ncu says of the launch that it counts as `id`.
std::string counted(const std::string& id, const std::string& kernel, const std::string& metric,
                    const std::string& unit, const std::string& value) {
  return '"' + id + "\",\"" + kernel + R"~(","(128, 1, 1)","(64, 1, 1)",")~" + metric + "\",\"" +
         unit + "\",\"" + value + "\"\n";
}

// Two passes over two rows: auto in two kernels on a case with a slash, in one on the other.
std::string said_by_ncu() {
  const std::string launched =
      "anchors qkv/decode=8 auto: launched once in the range\n"
      "auto-wide 073-down auto: launched once in the range\n";
  const std::string shrink =
      "qkv/decode=8 auto/void lora_bench::kernels::panel_shrink<__nv_bfloat16 /*x*/>(float)";
  const std::string expand = "lora-bench/qkv/decode=8 auto/void panel_expand(int)";
  const std::string cluster = "073-down auto/void lora_bench::kernels::cluster_linear<16>(int)";
  const std::string time = "gpu__time_duration.sum";
  return "==PROF== Connected to process 7\n" + launched + launched +
         R"("ID","Kernel Name","Block Size","Grid Size","Metric Name","Metric Unit","Metric Value")"
         "\n" +
         counted("0", shrink, time, "ns", "12,640") + counted("0", shrink, kDram, "%", "41.6") +
         counted("0", shrink, kTensor, "", "(!) n/a") +
         counted("0", shrink, kTensorIssued, "%", "3.2") +
         counted("0", shrink, "launch__registers_per_thread", "register/thread", "96") +
         counted("0", shrink, "dram__bytes_read.sum", "Mbyte", "6.29") +
         counted("0", shrink, wait_metric("selected"), "inst", "2") +
         counted("0", shrink, wait_metric("long_scoreboard"), "inst", "5") +
         counted("0", shrink, wait_metric("barrier"), "inst", "1.5") +
         counted("0", shrink, wait_metric("wait"), "inst", "1") +
         counted("0", shrink, wait_metric("drain"), "inst", "0.5") +
         counted("0", shrink, wait_metric("gmma"), "", "(!) n/a") +
         counted("1", expand, time, "us", "1.5") +
         counted("1", expand, wait_metric("drain"), "inst", "nan") +
         counted("2", cluster, time, "usecond", "8") + counted("2", cluster, kDram, "%", "70");
}

// What ncu says where it knows no metric of that name, which it gives as an expression.
std::string refuses(const std::string& base) {
  return "case \"$*\" in *" + base + "*)\n  echo '==ERROR== Failed to find metric regex:^" + base +
         "\\.(sum|min|max|avg|pct|ratio|max_rate)$'\n  exit 1 ;;\nesac\n";
}

// Where ncu does what `before` says and then writes what it said.
class ProfiledCases {
 public:
  ProfiledCases(const std::string& python, const std::string& before = "") {
    const std::string said = folder_.write("said.csv", said_by_ncu());
    make_program("ncu", "echo \"$*\" >>'" + arguments() + "'\n" + before + "cat '" + said + "'\n");
    make_program("lora-bench", "exit 1\n");
    python_ = run_process({python, "-c", "import sys; print(sys.executable, end='')"}).out;
  }
  [[nodiscard]] ProcessResult run(std::vector<std::string> words,
                                  const std::string& tool = "lora-bench") const {
    words.insert(words.begin(),
                 {python_, std::string(LORA_BENCH_SOURCE_DIR) + "/scripts/profile-cases.py",
                  "--tool", path(tool), "anchors", "auto-wide"});
    ProcessOptions options;
    options.environment = {{"PATH", folder_.folder() + ":/usr/bin:/bin"},
                           {"PYTHONDONTWRITEBYTECODE", "1"}};
    return run_process(words, options);
  }
  void remove_ncu() const { std::filesystem::remove(path("ncu")); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path(name); }
  [[nodiscard]] std::string arguments() const { return path("arguments"); }

 private:
  void make_program(const std::string& name, const std::string& text) const {
    std::filesystem::permissions(folder_.write(name, "#!/bin/sh\n" + text),
                                 std::filesystem::perms::owner_all);
  }

  TemporaryFolder folder_;
  std::string python_;
};

void check_left(const ProcessResult& result, int exit_code, const std::string& sentence) {
  CAPTURE(result.err);
  CAPTURE(sentence);
  CHECK(result.exit_code == exit_code);
  CHECK(contains(result.err, sentence));
  CHECK_FALSE(contains(result.err, "Traceback"));
  CHECK_FALSE(contains(result.out, "| case |"));
}

}  // namespace

TEST_CASE("a profile shows each kernel of a case, what it uses and what its warps wait for") {
  LORA_BENCH_NEED_NUMPY(python);
  const ProfiledCases cases(python);
  const ProcessResult result = cases.run({"--case", "073-*", "--case", "qkv/*"});
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out,
                 "| qkv/decode=8 | auto | panel_shrink | 12.64 | 42 | - | 3 | - | - | 96 | "
                 "long_scoreboard 50 %, barrier 15 %, wait 10 % |\n"
                 "| qkv/decode=8 | auto | panel_expand | 1.50 | - | - | - | - | - | - |  |\n"
                 "| 073-down | auto | cluster_linear | 8.00 | 70 | "));
  const std::string asked = read_file(cases.arguments());
  CAPTURE(asked);
  CHECK(contains(asked, "--replay-mode application --cache-control none "));
  CHECK(contains(asked,
                 "lora-bench run anchors auto-wide --backends auto --case 073-* --case qkv/* "
                 "--profile\n"));
}

TEST_CASE("a profile that repeats the launch itself flushes the caches before each pass") {
  LORA_BENCH_NEED_NUMPY(python);
  const ProfiledCases cases(python);
  CHECK(cases.run({"--replay", "kernel"}).exit_code == 0);
  CHECK(contains(read_file(cases.arguments()), "--replay-mode kernel --cache-control all "));
}

TEST_CASE("a profile is stored whole, with every share of the warps' time") {
  LORA_BENCH_NEED_NUMPY(python);
  const ProfiledCases cases(python);
  const ProcessResult result =
      cases.run({"--out", cases.path("p.jsonl"), "--out", cases.path("p.csv")});
  CHECK(result.exit_code == 0);
  const std::string lines = read_file(cases.path("p.jsonl"));
  CAPTURE(lines);
  CHECK(contains(lines,
                 R"({"case": "qkv/decode=8", "backend": "auto", "kernel": "void lora_bench::)"));
  CHECK(contains(lines, R"~("grid": "(64, 1, 1)", "block": "(128, 1, 1)", "time_us": 12.64)~"));
  CHECK(
      contains(lines, R"("dram_read_bytes": 6290000.0, "registers": 96.0, "selected_pct": 20.0)"));
  CHECK(contains(lines, R"("gmma_pct": null)"));
  const std::string table = read_file(cases.path("p.csv"));
  CHECK(contains(table, "case,backend,kernel,grid,block,time_us,dram_pct,"));
  CHECK(contains(table, "\n073-down,auto,"));
  check_left(cases.run({"--out", cases.path("p.txt")}), 1, "p.txt: .jsonl or .csv");
  check_left(cases.run({"--out", cases.path("none/p.csv")}), 5, "there is no folder ");
}

TEST_CASE("a profile goes on without metrics that ncu does not know, and names them") {
  LORA_BENCH_NEED_NUMPY(python);
  const ProfiledCases cases(python,
                            refuses("sm__warps_active") +
                                refuses("smsp__average_warps_issue_stalled_misc_per_issue_active"));
  const ProcessResult result = cases.run({});
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.err,
                 "does not know it here: sm__warps_active.avg.pct_of_peak_sustained_active\n"));
  CHECK(contains(result.err, "does not know it here: " + wait_metric("misc") + "\n"));
  CHECK(contains(result.err, "without a value on this GPU: "));
  CHECK(contains(result.err, wait_metric("gmma")));
  CHECK_FALSE(contains(result.err, kDram));
  check_left(ProfiledCases(python, "echo '==ERROR== Failed to find metric regex:^other$'; exit 1\n")
                 .run({}),
             5, "Failed to find metric regex:^other$");
}

TEST_CASE("a profile that cannot be taken says what to do") {
  LORA_BENCH_NEED_NUMPY(python);
  check_left(
      ProfiledCases(python, "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have'\n").run({}),
      5, "be root, load the driver with NVreg_RestrictProfilingToAdminUsers=0");
  check_left(ProfiledCases(python, "echo 'no case is left to run' >&2; exit 1\n").run({}), 5,
             "no case is left to run");
  check_left(ProfiledCases(python, "sed /launched/d \"${0%/*}\"/said.csv; exit 0\n").run({}), 5,
             "says of no row that it launched it: ==PROF== Connected to process 7");
  const ProfiledCases cases(python);
  check_left(cases.run({}, "nothing"), 1, "nothing; name the built lora-bench with --tool");
  cases.remove_ncu();
  if (run_process({"sh", "-c", "PATH=/usr/bin:/bin command -v ncu"}).exit_code != 0) {
    check_left(cases.run({}), 5, "no ncu in the PATH; Nsight Compute has it");
  }
}

}  // namespace lora_bench::test
