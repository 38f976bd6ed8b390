#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "support/process.h"

namespace lora_bench::test {
namespace {

namespace fs = std::filesystem;

bool starts_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

// Lines of ```sh blocks and inline code, in the order in which a reader meets them.
std::vector<std::string> commands_of_readme() {
  static const std::regex kInline("`(lora-bench [^`]+)`");
  std::istringstream readme(read_file(std::string(LORA_BENCH_SOURCE_DIR) + "/README.md"));
  std::vector<std::string> commands;
  std::string fence;
  for (std::string line; std::getline(readme, line);) {
    if (starts_with(line, "```")) {
      fence = fence.empty() ? line : "";
    } else if (fence == "```sh") {
      const std::string command = line.substr(0, line.find("  #"));
      if (!command.empty() && command.front() != '#') {
        commands.push_back(command);
      }
    } else if (fence.empty()) {
      for (std::sregex_iterator at(line.begin(), line.end(), kInline), end; at != end; ++at) {
        commands.push_back((*at)[1]);
      }
    }
  }
  return commands;
}

// What a README leaves to the reader, filled in; "" for what needs a GPU or packages of Python, or
// would run these tests.
std::string runnable(std::string command) {
  for (const char* left_out : {"scripts/", "naive", "sudo", "cmake", "pip ", "-m venv", "peer:"}) {
    if (contains(command, left_out)) {
      return "";
    }
  }
  // As few as a verdict needs: the others take their time. More cases have a test of their own.
  command = std::regex_replace(command, std::regex("--repeat \\d+"), "--repeat 6");
  command = std::regex_replace(command, std::regex("--cases \\d+"), "--cases 50");
  command =
      std::regex_replace(command, std::regex("--self-test"), "--self-test --correct-cases 50");
  command = std::regex_replace(command, std::regex("\\bFILE\\b"), "smoke");
  return std::regex_replace(command, std::regex("\\bDIR\\b"), "exported");
}

// What a time on a busy machine is worth is the machine's affair, not the README's: two runs of the
// same code may be the same (0) or undecided (4), and one may be below a ceiling that was taken too
// low (4).
bool ran_well(const std::string& command, const ProcessResult& result) {
  if (contains(command, " run ") && contains(result.err, " INVALID; exit 4")) {
    return !contains(result.err, "FAILED") && !contains(result.err, "ERROR");
  }
  if (contains(command, " compare ")) {
    return contains(result.out, "verdict") && (result.exit_code == 0 || result.exit_code == 4);
  }
  return result.exit_code == 0;
}

// Not of the sanitized tool: a page is right or wrong whatever the build, and takes minutes there;
// what its commands do is seen by tests of their own.
TEST_CASE("the commands of the README do what it says") {
  const TemporaryFolder folder;
  const fs::path tool = tool_path();
  ProcessOptions options;
  options.folder = folder.folder();
  options.environment = {
      {"PATH", tool.parent_path().string() + ":" + std::string(std::getenv("PATH"))},
      {"XDG_CACHE_HOME", LORA_BENCH_TEST_CACHE},
      {"LORA_BENCH_SCENARIOS", LORA_BENCH_SOURCE_DIR "/scenarios"}};
  // The results that its commands read: stored ones, and those of a reader.
  fs::create_directory_symlink(LORA_BENCH_SOURCE_DIR "/docs", fs::path(options.folder) / "docs");
  for (const char* rows : {"rows.jsonl", "base.jsonl", "new.jsonl"}) {
    const std::string command = std::string("lora-bench run smoke --backends cpu --out ") + rows;
    REQUIRE(ran_well(command, run_process({"sh", "-c", command}, options)));
  }
  int ran = 0;
  for (const std::string& written : commands_of_readme()) {
    const std::string command = runnable(written);
    if (command.empty()) {
      continue;
    }
    const ProcessResult result = run_process({"sh", "-c", command}, options);
    CAPTURE(command);
    CAPTURE(result.err);
    CHECK(ran_well(command, result));
    ++ran;
  }
  CHECK(ran >= 5);
}

}  // namespace
}  // namespace lora_bench::test
