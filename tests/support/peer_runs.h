#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/process.h"

// Runs of scripts/peers/run.py on a few short cases.
namespace lora_bench::test {

inline const std::string kPeers = std::string(LORA_BENCH_SOURCE_DIR) + "/scripts/peers/";

// The beginning of a peer that is NumPy's but for `launch`, and tells its sets of weights apart.
inline const std::string kNumpyWithSets =
    "from peer_numpy import *\n"
    "import peer_numpy\n"
    "sets = []\n"
    "def operands(state, a, b):\n"
    "    sets.append((a, b))\n"
    "    return sets[-1]\n";

inline ProcessOptions without_bytecode() {
  ProcessOptions options;
  options.environment["PYTHONDONTWRITEBYTECODE"] = "1";
  return options;
}

// Cases of smoke, exported into the folder, measured as shortly as can be.
inline std::vector<std::string> selection(const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"smoke",
                                 "--backends",
                                 "cpu",
                                 "--case",
                                 "decode1-rank8",
                                 "--case",
                                 "decode8-rank8",
                                 "--set",
                                 "measure.warmup_ms=0",
                                 "--set",
                                 "measure.min_time_ms=1",
                                 "--set",
                                 "measure.max_time_ms=10"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline void export_cases(const TemporaryFolder& folder, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = selection(more);
  words.insert(words.begin(), "export");
  words.insert(words.end(), {"--to", folder.path("cases")});
  const ProcessResult result = run_tool(words);
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
}

inline ProcessResult run_peer(const std::string& python, const TemporaryFolder& folder,
                              const std::string& peer, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{
      python,   kPeers + "run.py", "--cases", folder.path("cases"),      "--peer", peer,
      "--tool", tool_path(),       "--out",   folder.path("peers.jsonl")};
  words.insert(words.end(), more.begin(), more.end());
  return run_process(words, without_bytecode());
}

}  // namespace lora_bench::test
