#include <doctest/doctest.h>

#include <filesystem>
#include <string>

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
  const ProcessResult result =
      run_tool({"run", file, "--counters", "--backends", "cpu", "--out", rows});
  CAPTURE(result.err);
  if (result.exit_code == 1) {
    CHECK(contains(result.err,
                   "--counters would count nothing: it counts on a GPU, where none of the chosen "
                   "backends runs (cpu)"));
  } else {
    // The tool may be built otherwise than this test, so it alone can say what is missing here.
    CHECK(result.exit_code == 5);
    CHECK((contains(result.err, "this lora-bench was built without") ||
           contains(result.err, "driver") || contains(result.err, "cannot be read")));
  }
  CHECK_FALSE(std::filesystem::exists(rows));
}

}  // namespace
}  // namespace lora_bench::test
