#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/need_numpy.h"
#include "support/peer_runs.h"
#include "support/process.h"

namespace lora_bench::test {

TEST_CASE("a peer that writes rows without an adapter in any set but the first is FAILED") {
  LORA_BENCH_NEED_NUMPY(python);
  const std::string stray = kNumpyWithSets +
                            "def launch(state, operands):\n"
                            "    peer_numpy.launch(state, operands)\n"
                            "    if operands is not sets[0] WHERE:\n"
                            "        state['y'][state['case'].ids < 0] += np.float32(1)\n";
  const std::string step =
      "name: one\n"
      "dtype: bf16\n"
      "measure: {warmup_ms: 0, min_time_ms: 1, max_time_ms: 20}\n"
      "batch.decode: 9\n"
      "no_adapter: 0.4\n"
      "adapters: {slots: 2, rank: 8}\n"
      "skew: uniform\n";
  const std::string every = "", but_last = "and operands is not sets[-1]";
  const std::string row = "layer: {in: 256, out: 96}\n";
  struct Stray {
    std::string scenario, where, told;
  };
  const std::vector<Stray> strays{
      {"op: linear\n" + row, every, "the timed launches wrote rows without an adapter: up to "},
      {"op: linear\n" + row + "add_inputs: false\n", every,
       "the timed launches wrote rows without an adapter: up to "},
      {"op: linear\n" + row + "add_inputs: false\n", every,
       " timed wrote rows without an adapter: up to 1 was added or taken away"},
      {"op: linear\n" + row + "measure.cache: cold\n", but_last,
       " timed wrote rows without an adapter: up to 1 was added or taken away"},
      {"op: layer\nlayer: {kind: row, in: 256, out: [96]}\n", every,
       "the timed launches wrote rows without an adapter: 384 of 384 elements are not those of"},
      // The product of the last set has overwritten what the others left.
      {"op: layer\nlayer: {kind: row, in: 256, out: [96]}\n", but_last,
       " timed wrote rows without an adapter: 384 of 384 elements are not those of the product"}};
  for (const Stray& each : strays) {
    CAPTURE(each.scenario);
    CAPTURE(each.told);
    const TemporaryFolder folder;
    const std::string file = folder.write("one.yaml", step + each.scenario);
    REQUIRE(
        run_tool({"export", file, "--backends", "cpu", "--to", folder.path("cases")}).exit_code ==
        0);
    const ProcessResult right = run_peer(python, folder, "numpy");
    CHECK_MESSAGE(right.exit_code == 0, right.out, right.err);
    std::string peer = stray;
    peer.replace(peer.find("WHERE"), 5, each.where);
    const ProcessResult result = run_peer(python, folder, folder.write("stray.py", peer));
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(contains(result.out, each.told), result.out, result.err);
  }
}

}  // namespace lora_bench::test
