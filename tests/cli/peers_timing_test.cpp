#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/need_numpy.h"
#include "support/peer_runs.h"
#include "support/process.h"

namespace lora_bench::test {

TEST_CASE("the tax of a peer is the time of a launch with its base less that of the base alone") {
  LORA_BENCH_NEED_NUMPY(python);
  const std::string script =
      "import sys; sys.path.insert(0, sys.argv[1])\n"
      "import timing\n"
      "class Sequence:\n"
      "    launches, base_clock, taken = [None] * 4, 'a clock', ''\n"
      "    def run_seconds(self):\n"
      "        self.taken += 'L'\n"
      "        return 4 * 25e-6\n"
      "    def base_seconds(self):\n"
      "        self.taken += 'b'\n"
      "        return 4 * 20e-6\n"
      "sequence = Sequence()\n"
      "samples, base, warning = timing.collect(sequence, dict(warmup_ms=0, min_samples=6, "
      "max_samples=9,\n"
      "    min_time_ms=0, max_time_ms=1e5, noise_target=0.01))\n"
      "print(sequence.taken, warning)\n"
      "def shown(columns):\n"
      "    print({key: round(float(value), 6) for key, value in columns.items()})\n"
      "shown(timing.tax_columns(samples, base, 0.5)[0])\n"
      "shown(timing.tax_columns(samples, base, 5.5)[0])\n"
      "shown(timing.tax_columns(base, samples, 0)[0])\n"
      "of_pairs = [1e-6 * i for i in range(1, 9)]\n"
      "shown(timing.tax_columns([*of_pairs, 1e-4], [*(one - 1e-6 for one in of_pairs), 0], "
      "0)[0])\n";
  const ProcessResult result = run_process({python, "-c", script, kPeers}, without_bytecode());
  CHECK_MESSAGE(result.out ==
                    "bLbLbLbLbLbL \n"
                    "{'base_us': 20.0, 'tax_noise_us': 0.5, 'tax_us': 5.0, 'tax_pct': 25.0}\n"
                    "{'base_us': 20.0, 'tax_noise_us': 5.5}\n"
                    "{'base_us': 25.0, 'tax_noise_us': 5.0}\n"
                    "{'base_us': 3.0, 'tax_noise_us': 1.0, 'tax_us': 2.0, 'tax_pct': 66.666667}\n",
                result.out, result.err);
}

TEST_CASE("a peer is warmed up, and has as many samples as the settings ask, never less than two") {
  LORA_BENCH_NEED_NUMPY(python);
  const std::string script =
      "import sys; sys.path.insert(0, sys.argv[1])\n"
      "import types, timing\n"
      "def told(run_ms, **settings):\n"
      "    now, runs = [0.0], []\n"
      "    timing.time = types.SimpleNamespace(perf_counter=lambda: now[0])\n"
      "    class Sequence:\n"
      "        launches, base_clock = [None] * 4, None\n"
      "        def run_seconds(self):\n"
      "            now[0] += run_ms * 1e-3\n"
      "            runs.append(4e-6 * (9 if now[0] < 3.5e-3 else 1))\n"  // cold until 4 ms
      "            return runs[-1]\n"
      "    usual = dict(warmup_ms=4, min_samples=6, max_samples=90, min_time_ms=0, "
      "max_time_ms=1e5,\n"
      "                 noise_target=0.01)\n"
      "    samples, _, warning = timing.collect(Sequence(), {**usual, **settings})\n"
      "    cold = sum(sample > 2e-6 for sample in samples)\n"
      "    print(len(runs) - len(samples), len(samples), cold, warning)\n"
      "told(1)\n"
      "told(1, warmup_ms=20)\n"
      "told(1, min_samples=12)\n"
      "told(1, min_samples=1)\n"
      "told(1, min_time_ms=30)\n"
      "told(1, min_time_ms=200)\n"
      "told(1, min_samples=1, max_time_ms=1.5)\n"
      "told(1, min_samples=40, max_time_ms=4)\n"
      "told(1e4)\n"
      "told(1e4, max_time_ms=1)\n"
      "told(1, max_samples=1)\n";
  const ProcessResult result = run_process({python, "-c", script, kPeers}, without_bytecode());
  // Runs before the first sample, samples, those of them that were cold, and the warning.
  CHECK_MESSAGE(result.out ==
                    "4 6 0 \n20 6 0 \n4 12 0 \n4 6 0 \n4 30 0 \n4 90 0 \n4 6 0 \n4 20 0 \n1 6 0 \n"
                    "1 2 0 limit reached after 2 samples: too few to know the median\n"
                    "4 2 0 limit reached after 2 samples: too few to know the median\n",
                result.out, result.err);
}

TEST_CASE("a peer, and the base of its layer, find their weights in no cache") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const std::string scenario =
      folder.write("one.yaml",
                   "name: one\nop: layer\nlayer: {kind: row, in: 256, out: [96]}\nbatch.decode: 4\n"
                   "adapters: {slots: 2, rank: 8}\nskew: uniform\n");
  REQUIRE(
      run_tool({"export", scenario, "--backends", "cpu", "--to", folder.path("cases")}).exit_code ==
      0);
  const std::string script =
      "import sys; sys.path.insert(0, sys.argv[1])\n"
      "import peer_numpy, timing\n"
      "from arrays import NumPyArrays\n"
      "from clocks import HostClock\n"
      "from exported import Case\n"
      "case, arrays, touched = Case(sys.argv[2]), NumPyArrays(), []\n"
      "arrays.touch = touched.append\n"
      "weights = case.meta['row']['weight_bytes']\n"
      "sets = timing.Sets(case, peer_numpy, arrays, 2 * weights, 32)\n"
      "sets.fill()\n"
      "different = {w.tobytes() for w in sets.base_weights}\n"
      "print(sets.count, len(different), sets.rotated_bytes > 6 * weights, sets.scratch is None)\n"
      "sets = timing.Sets(case, peer_numpy, arrays, 100 * weights, 4)\n"
      "sets.fill()\n"
      "print(sets.count, sets.scratch.nbytes > 200 * weights)\n"
      "sequence = timing.Sequence(sets, HostClock(), HostClock())\n"
      "touched.clear()\n"
      "sequence.run_seconds()\n"
      "sequence.base_seconds()\n"
      "print(len(touched), len(sequence.launches))\n";
  const ProcessResult result = run_process(
      {python, "-c", script, kPeers, folder.path("cases/one.safetensors")}, without_bytecode());
  CHECK_MESSAGE(result.out == "7 7 True True\n4 True\n2 4\n", result.out, result.err);
}

}  // namespace lora_bench::test
