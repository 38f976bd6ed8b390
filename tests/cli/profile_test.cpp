#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "device/cupti.h"
#include "device/launch_counters.h"
#include "support/process.h"
#include "support/small_scenario.h"

namespace lora_bench::test {
namespace {

TEST_CASE("profile: a backend on the host has nothing for ncu to see") {
  const ProcessResult result = run_tool({"run", "smoke", "--profile", "--backends", "cpu"});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "cpu runs on the host: nothing for ncu to see"));
  CHECK_FALSE(contains(result.out, "ncu --target"));
}

TEST_CASE("profile: options that mean nothing with it are named") {
  const TemporaryFolder folder;
  const std::string rows = folder.path("rows.jsonl");
  const ProcessResult result = run_tool(
      {"run", "smoke", "--profile", "--backends", "cpu", "--out", rows, "--no-time", "--threshold",
       "max_time_us=1", "--isolate", "--counters", "--resume", folder.path("r.jsonl")});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err,
                 "leave out --out, --resume, --threshold, --no-time, --isolate, --counters"));
  CHECK_FALSE(std::filesystem::exists(rows));
}

TEST_CASE("counters: where nothing can be counted is said before anything is run or written") {
  const TemporaryFolder folder;
  const std::string rows = folder.path("rows.jsonl");
  const std::string file = folder.write("small.yaml", small_scenario());
  // The sanitized tool is built without CUDA, this test may be built with it.
  const std::string why_not =
      tool_is_sanitized() ? "this lora-bench was built without CUDA" : why_no_counters();
  const ProcessResult result =
      run_tool({"run", file, "--counters", "--backends", "cpu", "--out", rows});
  CAPTURE(result.err);
  CHECK(result.exit_code == (why_not.empty() ? 1 : 5));
  CHECK(contains(result.err, why_not.empty()
                                 ? "--counters would count nothing: it counts on a GPU, where none "
                                   "of the chosen backends runs (cpu)"
                                 : why_not));
  CHECK_FALSE(std::filesystem::exists(rows));
}

}  // namespace
}  // namespace lora_bench::test
