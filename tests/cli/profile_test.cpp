#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "support/process.h"

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
  const ProcessResult result =
      run_tool({"run", "smoke", "--profile", "--backends", "cpu", "--out", rows, "--no-time",
                "--threshold", "max_time_us=1", "--isolate", "--resume", folder.path("r.jsonl")});
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "leave out --out, --resume, --threshold, --no-time, --isolate"));
  CHECK_FALSE(std::filesystem::exists(rows));
}

}  // namespace
}  // namespace lora_bench::test
