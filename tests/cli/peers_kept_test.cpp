#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/need_numpy.h"
#include "support/peer_runs.h"
#include "support/process.h"

namespace lora_bench::test {
namespace {

// NumPy's, whose launches add what an earlier one added as long as `key` is the same.
std::string keeper(const std::string& key) {
  return "from peer_numpy import *\n"
         "import peer_numpy\n"
         "known = {}\n"
         "def launch(state, operands):\n"
         "    y, key = state['y'], (" +
         key +
         ")\n"
         "    if key not in known:\n"
         "        before = y.copy()\n"
         "        peer_numpy.launch(state, operands)\n"
         "        known[key] = y - before, operands\n"
         "    else:\n"
         "        y += known[key][0]\n";
}

const std::string kStep =
    "name: one\n"
    "dtype: bf16\n"
    "measure: {warmup_ms: 0, min_time_ms: 1, max_time_ms: 20}\n"
    "batch.decode: 9\n"
    "no_adapter: 0.2\n"
    "adapters: {slots: 3, rank: 8}\n"
    "skew: uniform\n";
const std::string kLinear = kStep + "op: linear\nlayer: {in: 256, out: [96, 32]}\n";
const std::string kLayer = kStep + "op: layer\nlayer: {kind: row, in: 256, out: [96]}\n";

void export_one(const TemporaryFolder& folder, const std::string& scenario) {
  const std::string file = folder.write("one.yaml", scenario);
  const ProcessResult result =
      run_tool({"export", file, "--backends", "cpu", "--to", folder.path("cases")});
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
}

}  // namespace

TEST_CASE("a peer that keeps an answer while x is the same is FAILED") {
  LORA_BENCH_NEED_NUMPY(python);
  const std::string x = "state['x'].tobytes()", of_set = "id(operands), " + x;
  const std::string by_b = " once B was another beside the same x: ";
  const std::string by_a = " once A was another beside the same x: ";
  struct Kept {
    std::string scenario, key, told;
  };
  const std::vector<Kept> all{
      {kLinear, of_set, by_b},
      {kLinear + "measure.cache: hot\n", x, by_b},
      {kLinear + "measure.cache: cold\n", of_set, by_b},
      {kLayer, of_set, by_b},
      // Whoever looks at a few weights, or at one half of them, sees none that is new.
      {kLinear, of_set + ", operands[0][0][:, 0, ::8].tobytes()", by_b},
      {kLinear, of_set + ", operands[1][0].tobytes(), operands[1][1].tobytes()", by_a}};
  for (const Kept& each : all) {
    CAPTURE(each.scenario);
    CAPTURE(each.key);
    const TemporaryFolder folder;
    export_one(folder, each.scenario);
    const ProcessResult right = run_peer(python, folder, "numpy");
    CHECK_MESSAGE(right.exit_code == 0, right.out, right.err);
    const ProcessResult result =
        run_peer(python, folder, folder.write("keeper.py", keeper(each.key)));
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(
        contains(result.out, "wrong after timing: a launch left a wrong output" + each.told),
        result.out, result.err);
  }
}

TEST_CASE("other weights are put where a peer keeps them, in whatever holds arrays") {
  LORA_BENCH_NEED_NUMPY(python);
  const std::vector<std::pair<std::string, std::string>> layouts{
      {"return {'a': a, 'b': tuple(b)}", "operands['a'], operands['b']"},
      {"return SimpleNamespace(both=[a, b], rank=8)", "operands.both"}};
  for (const auto& layout : layouts) {
    CAPTURE(layout.first);
    const TemporaryFolder folder;
    export_one(folder, kLinear);
    const std::string peer =
        "from peer_numpy import *\n"
        "import peer_numpy\n"
        "from types import SimpleNamespace\n"
        "def operands(state, a, b):\n"
        "    " +
        layout.first +
        "\n"
        "def launch(state, operands):\n"
        "    peer_numpy.launch(state, (*(" +
        layout.second + "),))\n";
    const ProcessResult result = run_peer(python, folder, folder.write("mine.py", peer));
    CHECK_MESSAGE(result.exit_code == 0, result.out, result.err);
  }
}

TEST_CASE("a peer that hides its weights is told that they cannot be changed") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  export_one(folder, kLinear);
  const std::string peer =
      "from peer_numpy import *\n"
      "import peer_numpy\n"
      "hidden = []\n"
      "def operands(state, a, b):\n"
      "    hidden.append((a, b))\n"
      "    return len(hidden) - 1\n"
      "def launch(state, operands):\n"
      "    peer_numpy.launch(state, hidden[operands])\n";
  const ProcessResult result = run_peer(python, folder, folder.write("mine.py", peer));
  CHECK(result.exit_code == 2);
  CHECK_MESSAGE(contains(result.out,
                         "ERROR      one on mine\n  ValueError: operands() returned no "
                         "array in tuples, lists, dictionaries or attributes"),
                result.out, result.err);
}

}  // namespace lora_bench::test
