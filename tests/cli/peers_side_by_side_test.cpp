#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/json_rows.h"
#include "support/need_numpy.h"
#include "support/peer_runs.h"
#include "support/process.h"

namespace lora_bench::test {

namespace fs = std::filesystem;

namespace {

// The row as --no-time leaves it.
void only_proved(nlohmann::json& row) {
  for (auto& item : row.items()) {
    const std::string& key = item.key();
    if (key.find("_us") != std::string::npos || key.ends_with("_per_s") || key.ends_with("Bps") ||
        key.ends_with("Pps") || key == "samples") {
      item.value() = nullptr;
    }
  }
}

}  // namespace

TEST_CASE(
    "a limited run of a peer begins no further case, and a resumed one makes those rows alone") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  CHECK(run_peer(python, folder, "numpy", {"--case", "decode1-rank8"}).exit_code == 0);
  const ProcessResult limited =
      run_peer(python, folder, "numpy", {"--resume", "--time-limit", "0"});
  CHECK(limited.exit_code == 4);
  CHECK(
      contains(limited.err, "run.py: 1 of 2 cases are left, from decode8-rank8 on: --time-limit"));
  CHECK(rows_of(folder.path("peers.jsonl")).size() == 1);

  const std::string turns = folder.path("turns");
  CHECK(run_peer(python, folder, "numpy", {"--resume", "--turns", turns}).exit_code == 0);
  const ProcessResult nothing = run_peer(python, folder, "numpy", {"--resume", "--turns", turns});
  CHECK(nothing.exit_code == 0);
  CHECK(contains(nothing.err, "run.py: all 2 cases have a row of numpy there"));
  std::vector<nlohmann::json> rows = rows_of(folder.path("peers.jsonl"));
  REQUIRE(rows.size() == 2);
  CHECK(rows[1]["case"] == "decode8-rank8");

  // What was only proved, is of another peer or of another case of the name, is no row of this.
  only_proved(rows[0]);
  rows[1]["content"] = "of another";
  const std::string both = rows[0].dump() + "\n" + rows[1].dump() + "\n";
  folder.write("peers.jsonl", "{\"kind\":\"context\"}\n" + both);
  CHECK(run_peer(python, folder, "numpy", {"--resume"}).exit_code == 0);
  CHECK(rows_of(folder.path("peers.jsonl")).size() == 4);
}

TEST_CASE(
    "a resumed run of a peer takes no row of another version, device or scenario for its own") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::vector<std::string> resume{"--no-time", "--resume"};
  REQUIRE(run_peer(python, folder, "numpy", resume).exit_code == 0);
  const std::string file = folder.path("peers.jsonl");
  const std::string text = read_file(file);
  const auto resumed = [&](const std::string& key, const nlohmann::json& value) {
    std::string edited;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      nlohmann::ordered_json json = nlohmann::ordered_json::parse(line);
      if (json.contains(key)) {
        json[key] = value;
      }
      edited += json.dump() + "\n";
    }
    folder.write("peers.jsonl", edited);
    return run_peer(python, folder, "numpy", resume);
  };
  const ProcessResult version = resumed("peer", "NumPy 0.1");
  CHECK(version.exit_code == 1);
  CHECK(
      contains(version.err, "peers.jsonl has a row of numpy of 'NumPy 0.1', this run is of 'Num"));
  const ProcessResult device = resumed("device_identity", "another");
  CHECK(device.exit_code == 1);
  CHECK(contains(device.err, "has a row of numpy of 'another', this run is of '"));
  CHECK(rows_of(file).size() == 2);
  CHECK(resumed("scenario", "another").exit_code == 0);
  CHECK(rows_of(file).size() == 4);
  CHECK(resumed("peer", "not here").exit_code == 0);
  CHECK(rows_of(file).size() == 4);
}

TEST_CASE("while a peer is timed no other run is at work, and it is at work in no other's time") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::string turns = folder.path("turns");
  const std::string peer = folder.write(
      "mine.py",
      "from peer_numpy import *\n"
      "import fcntl, inspect, peer_numpy\n"
      "def refused(how):\n"
      "    with open('" +
          turns +
          "', 'a') as file:\n"
          "        try:\n"
          "            fcntl.flock(file, how | fcntl.LOCK_NB)\n"
          "            return False\n"
          "        except BlockingIOError:\n"
          "            return True\n"
          "def available(folder):\n"
          "    assert refused(fcntl.LOCK_EX), 'it is made while another is timed'\n"
          "    return peer_numpy.available(folder)\n"
          "def launch(state, operands):\n"
          "    timed = any(frame.function == 'collect' for frame in inspect.stack(0))\n"
          "    assert refused(fcntl.LOCK_SH if timed else fcntl.LOCK_EX), ('timed', timed)\n"
          "    peer_numpy.launch(state, operands)\n");
  const std::vector<std::string> one{"--turns", turns, "--case", "decode1-rank8"};
  const ProcessResult timed = run_peer(python, folder, peer, one);
  CHECK_MESSAGE(timed.exit_code == 0, timed.out, timed.err);
  std::vector<std::string> compiles = one;
  compiles.emplace_back("--compile");
  CHECK(run_peer(python, folder, peer, compiles).err.empty());
}

TEST_CASE("a peer that only compiles launches its cases and writes no row") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_cases(folder);
  const std::string peer = folder.write("mine.py",
                                        "from peer_numpy import *\n"
                                        "def launch(state, operands):\n"
                                        "    raise RuntimeError('no kernel')\n");
  const ProcessResult result = run_peer(python, folder, peer, {"--compile"});
  CHECK(result.exit_code == 0);
  CHECK(contains(result.err, "decode8-rank8: RuntimeError: no kernel"));
  CHECK_FALSE(fs::exists(folder.path("peers.jsonl")));
}

}  // namespace lora_bench::test
