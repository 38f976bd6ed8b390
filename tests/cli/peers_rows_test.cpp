#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/need_numpy.h"
#include "support/peer_runs.h"
#include "support/process.h"

namespace lora_bench::test {

TEST_CASE("a peer that leaves out a few rows of every set but the first is FAILED") {
  LORA_BENCH_NEED_NUMPY(python);
  const std::string lazy = kNumpyWithSets +
                           "def launch(state, operands):\n"
                           "    before = state['y'][::8].copy()\n"
                           "    peer_numpy.launch(state, operands)\n"
                           "    if operands is not sets[0]:\n"
                           "        state['y'][::8] = before\n";
  const std::string step =
      "name: one\n"
      "dtype: bf16\n"
      "measure: {warmup_ms: 0, min_time_ms: 1, max_time_ms: 20}\n"
      "batch.decode: 24\n"
      "adapters: {slots: 2, rank: 8}\n"
      "skew: uniform\n";
  const std::string row = "layer: {in: 256, out: 96}\n";
  const std::vector<std::string> scenarios{"op: linear\n" + row,
                                           "op: linear\nadd_inputs: false\n" + row,
                                           "op: linear\nmeasure.cache: cold\n" + row,
                                           "op: layer\nlayer: {kind: row, in: 256, out: [96]}\n"};
  for (const std::string& scenario : scenarios) {
    CAPTURE(scenario);
    const TemporaryFolder folder;
    const std::string file = folder.write("one.yaml", step + scenario);
    REQUIRE(
        run_tool({"export", file, "--backends", "cpu", "--to", folder.path("cases")}).exit_code ==
        0);
    const ProcessResult right = run_peer(python, folder, "numpy");
    CHECK_MESSAGE(right.exit_code == 0, right.out, right.err);
    const ProcessResult result = run_peer(python, folder, folder.write("lazy.py", lazy));
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(contains(result.out, " left a wrong output once x was another: "), result.out,
                  result.err);
  }
}

TEST_CASE("a row that one launch among many leaves out shows right behind it") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const std::string file =
      folder.write("one.yaml",
                   "name: one\ndtype: bf16\nop: linear\nlayer: {in: 64, out: 96}\n"
                   "batch.decode: 8\nadapters: {slots: 2, rank: 8}\nskew: uniform\n"
                   "measure: {warmup_ms: 0, min_time_ms: 1, max_time_ms: 20}\n");
  REQUIRE(run_tool({"export", file, "--backends", "cpu", "--to", folder.path("cases")}).exit_code ==
          0);
  // The sum of all misses a tenth in one row, less than roundings may.
  const std::string script =
      "import sys; sys.path.insert(0, sys.argv[1])\n"
      "import types, after_timing, peer_numpy, timing\n"
      "from arrays import NumPyArrays\n"
      "from clocks import HostClock\n"
      "from exported import Case\n"
      "sets = []\n"
      "def operands(state, a, b):\n"
      "    sets.append((a, b))\n"
      "    return sets[-1]\n"
      "def launch(state, operands):\n"
      "    before = state['y'][3].copy()\n"
      "    peer_numpy.launch(state, operands)\n"
      "    if len(sets) > 37 and operands is sets[37]:\n"
      "        state['y'][3] = before\n"
      "lazy = types.SimpleNamespace(prepare=peer_numpy.prepare, operands=operands, launch=launch)\n"
      "case, arrays = Case(sys.argv[2]), NumPyArrays()\n"
      "after_timing.MOST_LOOKS = 2**20\n"
      "for peer in lazy, peer_numpy:\n"
      "    of_peer = timing.Sets(case, peer, arrays, case.meta['row']['weight_bytes'] * 33, 100)\n"
      "    of_peer.launches[0]()\n"
      "    proved = arrays.copied(of_peer.output())\n"
      "    of_peer.fill()\n"
      "    sequence = timing.Sequence(of_peer, HostClock())\n"
      "    timing.collect(sequence, case.meta['measure'])\n"
      "    print(of_peer.count, after_timing.wrong(sequence, proved).split(' of the ')[0])\n";
  const ProcessResult result = run_process(
      {python, "-c", script, kPeers, folder.path("cases/one.safetensors")}, without_bytecode());
  CHECK_MESSAGE(result.out == "100 launch 38\n100 \n", result.out, result.err);
}

// What two runs of a kernel whose sums meet in no fixed order leave after hundreds of launches,
// each of which rounds y.
TEST_CASE("a graph that differs from its launches by roundings alone is right") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const std::string file =
      folder.write("one.yaml",
                   "name: one\ndtype: bf16\nop: linear\nlayer: {in: 64, out: 96}\n"
                   "batch.decode: 8\nadapters: {slots: 2, rank: 8}\nskew: uniform\n"
                   "measure: {warmup_ms: 0, min_time_ms: 1, max_time_ms: 20}\n");
  REQUIRE(run_tool({"export", file, "--backends", "cpu", "--to", folder.path("cases")}).exit_code ==
          0);
  // Some rows get a little more in a launch, drawn anew each time, unless the order is fixed; the
  // fault of a graph is a share of the largest y, added to one element.
  const std::string script =
      "import sys; sys.path.insert(0, sys.argv[1])\n"
      "import types, numpy as np, after_timing, peer_numpy, timing\n"
      "from arrays import NumPyArrays\n"
      "from clocks import HostClock\n"
      "from exported import Case, rounded\n"
      "class Device(NumPyArrays):\n"
      "    on_gpu = True\n"
      "class Graph(HostClock):\n"
      "    fault = 0\n"
      "    def run(self):\n"
      "        super().run()\n"
      "        sets.output()[3, 5] += self.fault * np.abs(sets.output()).max()\n"
      "case, arrays, dice = Case(sys.argv[2]), Device(), np.random.default_rng(1)\n"
      "def launch(state, operands):\n"
      "    y, before = state['y'], state['y'].copy()\n"
      "    peer_numpy.launch(state, operands)\n"
      "    more = 2.0**-8 * (dice.random((len(y), 1)) < 0.5) * (not fixed)\n"
      "    y[...] = rounded(before + (y - before) * (1 + more).astype('<f4'), 'bf16')\n"
      "peer = types.SimpleNamespace(prepare=peer_numpy.prepare, operands=peer_numpy.operands,\n"
      "                             launch=launch)\n"
      "for fixed, fault in (True, 0), (False, 0), (True, 0.04), (False, 0.1):\n"
      "    sets = timing.Sets(case, peer, arrays, case.meta['row']['weight_bytes'] * 200, 600)\n"
      "    clock = Graph()\n"
      "    clock.load(sets.launches)\n"
      "    sets.restore()\n"
      "    sets.launches[0]()\n"
      "    proved = arrays.copied(sets.output())\n"
      "    sets.fill()\n"
      "    sequence = timing.Sequence(sets, clock)\n"
      "    clock.fault = fault\n"
      "    wrong = after_timing.wrong(sequence, proved)\n"
      "    print(len(sequence.launches), wrong.split(': up to')[0])\n";
  const ProcessResult result = run_process(
      {python, "-c", script, kPeers, folder.path("cases/one.safetensors")}, without_bytecode());
  const std::string differs =
      "600 the graph that was timed leaves another output than its launches one by one\n";
  CHECK_MESSAGE(result.out == "600 \n600 \n" + differs + differs, result.out, result.err);
}

TEST_CASE("as many rows of a peer are looked at as NumPy works out in a second or two") {
  LORA_BENCH_NEED_NUMPY(python);
  const std::string script =
      "import sys; sys.path.insert(0, sys.argv[1])\n"
      "from types import SimpleNamespace as Names\n"
      "from expected_rows import affordable\n"
      "def rows(sets, launches, looks, layer=False, on_gpu=False, **sizes):\n"
      "    case = Names(layer=layer, **sizes)\n"
      "    return affordable(Names(case=case, count=sets, arrays=Names(on_gpu=on_gpu)),\n"
      "                      launches, looks)\n"
      "qkv = dict(in_features=4096, widths=[4096, 1024, 1024])\n"
      "print(rows(32, 64, 32, max_rank=16, **qkv))\n"
      "print(rows(2, 2, 2, max_rank=256, **qkv))\n"
      "print(rows(2048, 2048, 32, max_rank=8, in_features=64, widths=[64]))\n"
      "down = dict(in_features=14336, widths=[4096], max_rank=16, layer=True)\n"
      "print(rows(32, 64, 32, **down), rows(32, 64, 32, on_gpu=True, **down))\n";
  const ProcessResult result = run_process({python, "-c", script, kPeers}, without_bytecode());
  // 2^31 / (32 (4096 (48 + 32) + 256 16) + 64 256 32), 2^31 / (2 (4096 (768 + 32) + 256 256) +
  // 2 256 32), 2^31 / (2048 (64 (8 + 32) + 64 8) + 2048 64 32), and for a layer 16 at least, or
  // 2^31 / (32 (14336 (16 + 32) + 256 16) + 64 256 32).
  CHECK_MESSAGE(result.out == "192\n320\n204\n16 94\n", result.out, result.err);
}

}  // namespace lora_bench::test
