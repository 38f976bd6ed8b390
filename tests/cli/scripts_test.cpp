#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "support/process.h"

namespace {

namespace fs = std::filesystem;
using lora_bench::test::ProcessResult;
using lora_bench::test::run_process;

const std::string kScripts = std::string(LORA_BENCH_SOURCE_DIR) + "/scripts/";

std::vector<std::string> shell_scripts() {
  std::vector<std::string> scripts{std::string(LORA_BENCH_SOURCE_DIR) + "/.ci/run"};
  for (const fs::directory_entry& entry : fs::directory_iterator(kScripts)) {
    if (entry.path().extension() == ".sh") {
      scripts.push_back(entry.path().string());
    }
  }
  return scripts;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("every script parses and can be executed") {
  const std::vector<std::string> scripts = shell_scripts();
  CHECK(scripts.size() >= 7);
  for (const std::string& script : scripts) {
    CAPTURE(script);
    CHECK(run_process({"bash", "-n", script}).exit_code == 0);
    CHECK((fs::status(script).permissions() & fs::perms::owner_exec) != fs::perms::none);
  }
}

TEST_CASE("set-up says what it needs without installing, from any directory") {
  lora_bench::test::ProcessOptions elsewhere;
  elsewhere.folder = "/";
  const ProcessResult result =
      run_process({kScripts + "setup.sh", "--for", "build", "--dry-run"}, elsewhere);
  CHECK(result.exit_code == 0);
  if (fs::exists("/usr/bin/apt-get")) {
    CHECK(contains(result.out, "needed: g++ cmake ninja-build"));
    CHECK(contains(result.out, "missing: "));
    CHECK(!contains(result.out, "doctest"));
  }
}

TEST_CASE("set-up for tests needs more than set-up for building") {
  const ProcessResult result = run_process({kScripts + "setup.sh", "--for", "test", "--dry-run"});
  CHECK(result.exit_code == 0);
  if (fs::exists("/usr/bin/apt-get")) {
    CHECK(contains(result.out, "doctest-dev"));
    CHECK(contains(result.out, "python3-numpy"));
    CHECK(contains(result.out, "python3-venv"));
    CHECK(contains(result.out, "python3-matplotlib"));
  }
}

TEST_CASE("a script refuses an argument it does not know") {
  for (const char* script : {"setup.sh", "format.sh", "test.sh", "fuzz.sh", "gpu-check.sh",
                             "release.sh", "make-wheel.sh", "check-wheel.sh"}) {
    CAPTURE(script);
    const ProcessResult result = run_process({kScripts + script, "--nonsense"});
    CHECK(result.exit_code == 1);
    CHECK(contains(result.err, "usage: "));
  }
}

TEST_CASE("the GPU check says without a GPU what parts it has and what it reads") {
  const ProcessResult help = run_process({kScripts + "gpu-check.sh", "--help"});
  CHECK(help.exit_code == 0);
  CHECK(contains(help.out, "parts, in this order: tests device verify"));
  CHECK(contains(help.out, "LORA_BENCH_PEER_MODULES"));
  CHECK(!contains(help.out, "set -euo"));
  // Refused before the first part runs.
  const ProcessResult refused = run_process({kScripts + "gpu-check.sh", "anchors", "per"});
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.err, "no part 'per'"));
  CHECK(contains(refused.err, "of: tests device verify self-test"));
}
