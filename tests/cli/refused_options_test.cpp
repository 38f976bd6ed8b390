#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/process.h"
#include "support/small_scenario.h"

namespace lora_bench::test {
namespace {

// With --correct-cases 1 a self-test that is not refused ends in seconds, not minutes.
TEST_CASE("exit 1: the self-test refuses what it would ignore") {
  const TemporaryFolder folder;
  const std::string out = folder.path("rows.jsonl");
  const std::vector<std::vector<std::string>> ignored{{"smoke"},
                                                      {"--backends", "cpu"},
                                                      {"--set", "dtype=fp16"},
                                                      {"--case", "*"},
                                                      {"--max-cases", "3"},
                                                      {"--filter", "rank>=8"},
                                                      {"--isolate"},
                                                      {"--out", out},
                                                      {"--quick"},
                                                      {"--tuning", "t.yaml"}};
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

}  // namespace
}  // namespace lora_bench::test
