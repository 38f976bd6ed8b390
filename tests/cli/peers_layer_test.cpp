#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/json_rows.h"
#include "support/need_numpy.h"
#include "support/peer_runs.h"
#include "support/process.h"

namespace lora_bench::test {
namespace {

const char* const kLayers =
    "name: small-layers\n"
    "op: layer\n"
    "dtype: bf16\n"
    "backends: cpu\n"
    "verify.max_rows: 8\n"
    "measure: {warmup_ms: 0, min_time_ms: 1, max_time_ms: 20}\n"
    "batch.decode: 9\n"
    "skew: uniform\n"
    "cases:\n"
    "  - {name: gate, layer: {kind: merged_column, in: 256, out: [96, 96]}, no_adapter: 0.3,\n"
    "     adapters: {slots: 3, rank: [4, 8]}}\n"
    "  - {name: down, layer: {kind: row, in: 512, out: [128]}, adapters: {slots: 3, rank: 8}}\n";

std::string export_layers(const TemporaryFolder& folder) {
  const std::string file = folder.write("layers.yaml", kLayers);
  const ProcessResult result = run_tool(
      {"export", file, "--backends", "cpu", "--scales-as-written", "--to", folder.path("cases")});
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return file;
}

// The rows of a file as a quiet machine gives them: a quarter of the time is tax, all of it above
// the floor. What a busy one measures may be neither.
void quieten(const std::string& file) {
  std::string text;
  const std::string all = read_file(file);
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = all.find('\n', begin);
    nlohmann::json line = nlohmann::json::parse(all.substr(begin, end - begin));
    if (line["kind"] == "row") {
      const double time_us = line["time_us"].get<double>();
      line.update({{"status", "PASSED"},
                   {"base_us", 0.75 * time_us},
                   {"tax_us", 0.25 * time_us},
                   {"noise_us", 0.001},
                   {"tax_noise_us", 0.001},
                   {"tax_pct", 100.0 / 3}});
      if (line["peer"] == "") {
        line.update({{"floor_us", 1e-3}, {"floor_ratio", 1e3 * time_us}});
        line.update({{"tax_floor_us", 1e-4}, {"tax_ratio", 2500 * time_us}});
      }
    }
    text += line.dump() + "\n";
    begin = end + 1;
  }
  std::ofstream(file) << unsealed(text);  // what is changed here is no doubt
}

}  // namespace

TEST_CASE("a peer's tax on a layer is proved, timed and stands beside ours") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  const std::string scenario = export_layers(folder);
  const ProcessResult result = run_peer(python, folder, "numpy");
  REQUIRE_MESSAGE(result.exit_code == 0, result.out, result.err);
  const std::vector<nlohmann::json> rows = rows_of(folder.path("peers.jsonl"));
  REQUIRE(rows.size() == 2);
  for (const nlohmann::json& row : rows) {
    CHECK(row["status"] == "PASSED");
    CHECK(row["op"] == "layer");
    CHECK(row["base_us"].get<double>() > 0);
    CHECK(row["tax_noise_us"].get<double>() >= 0);
    // Between numbers of a busy machine the tax may be none, and is told to be.
    CHECK(row["tax_us"].is_null() == contains(row["warning"].get<std::string>(), "tax < noise ("));
    if (!row["tax_us"].is_null()) {
      CHECK(row["tax_us"].get<double>() ==
            doctest::Approx(row["time_us"].get<double>() - row["base_us"].get<double>()));
    }
  }
  const ProcessResult own =
      run_tool({"run", scenario, "--quiet", "--out", folder.path("ours.jsonl")});
  const bool proved = own.exit_code == 0 || own.exit_code == 4;  // 4: a floor of a busier moment
  REQUIRE_MESSAGE(proved, own.out, own.err);
  quieten(folder.path("peers.jsonl"));
  quieten(folder.path("ours.jsonl"));
  const ProcessResult report =
      run_tool({"report", "--peers", folder.path("peers.jsonl"), folder.path("ours.jsonl")});
  CHECK(report.exit_code == 0);
  // Who is faster in how many of them, or within the noise, is the machine's business.
  const bool counted =
      contains(report.out, " in 1 of 2 cases") || contains(report.out, " in 2 of 2 cases");
  CHECK_MESSAGE(counted, report.out, report.err);
  CHECK(contains(report.out, "tax us"));
  CHECK(contains(report.out, "of that of numpy in geometric mean of 2 cases, at most "));
}

TEST_CASE("a peer that leaves out launches whose output another one overwrites is FAILED") {
  LORA_BENCH_NEED_NUMPY(python);
  // Nothing of the sets between the first, which is proved, and the last, which is seen at the end.
  const std::string lazy = kNumpyWithSets +
                           "def launch(state, operands):\n"
                           "    if operands is sets[0] or operands is sets[-1]:\n"
                           "        peer_numpy.launch(state, operands)\n";
  const std::string step =
      "name: one\n"
      "dtype: bf16\n"
      "measure: {warmup_ms: 0, min_time_ms: 1, max_time_ms: 20}\n"
      "batch.decode: 4\n"
      "adapters: {slots: 2, rank: 8}\n"
      "skew: uniform\n";
  const std::vector<std::pair<std::string, std::string>> scenarios{
      {"overwritten by the product", step + "op: layer\nlayer: {kind: row, in: 256, out: [96]}\n"},
      {"overwritten by the op",
       step + "op: linear\nlayer: {in: 256, out: 96}\nadd_inputs: false\n"},
      {"into another y", step + "op: linear\nlayer: {in: 256, out: 96}\nmeasure.cache: cold\n"}};
  for (const auto& scenario : scenarios) {
    const std::string& name = scenario.first;
    CAPTURE(name);
    const TemporaryFolder folder;
    const std::string file = folder.write("one.yaml", scenario.second);
    REQUIRE(
        run_tool({"export", file, "--backends", "cpu", "--to", folder.path("cases")}).exit_code ==
        0);
    const ProcessResult right = run_peer(python, folder, "numpy");
    CHECK_MESSAGE(right.exit_code == 0, right.out, right.err);
    const ProcessResult result = run_peer(python, folder, folder.write("lazy.py", lazy));
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(contains(result.out, "timed left a wrong output once x was another: "),
                  result.out, result.err);
  }
}

TEST_CASE("a peer that is wrong in a layer is FAILED by what finds it") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  static_cast<void>(export_layers(folder));
  const std::vector<std::pair<std::string, std::string>> peers{
      {"state['y'][...] = 0\n    peer_numpy.launch(state, operands)", "bounded: "},
      {"pass", "bounded: "},
      {"if len(known) < 9:\n"
       "        before = state['y'].copy()\n"
       "        peer_numpy.launch(state, operands)\n"
       "        known.append(state['y'] - before)\n"
       "    else:\n"
       "        state['y'] += known[0]",
       "wrong after timing: "}};
  for (const auto& peer : peers) {
    const std::string& launch = peer.first;
    CAPTURE(launch);
    const ProcessResult result =
        run_peer(python, folder,
                 folder.write("mine.py",
                              "from peer_numpy import *\nimport peer_numpy\nknown = []\n"
                              "def launch(state, operands):\n    " +
                                  launch + "\n"));
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(contains(result.out, "FAILED     down on mine\n  " + peer.second), result.out,
                  result.err);
  }
}

TEST_CASE("a product that a layer's y does not hold is told, whoever computed it") {
  LORA_BENCH_NEED_NUMPY(python);
  const TemporaryFolder folder;
  static_cast<void>(export_layers(folder));
  const ProcessResult result =
      run_peer(python, folder,
               folder.write("mine.py",
                            "from peer_numpy import *\n"
                            "import peer_numpy\n"
                            "def prepare(case, x, y, arrays):\n"
                            "    whole = arrays.product\n"
                            "    def product(x, weights, y, dtype):\n"
                            "        whole(x, weights, y, dtype)\n"
                            "        y[:, 5] *= 1.02\n"
                            "    arrays.product = product\n"
                            "    return peer_numpy.prepare(case, x, y, arrays)\n"));
  CHECK(result.exit_code == 2);
  CHECK_MESSAGE(contains(result.out, "the product of the layer is wrong in "), result.out,
                result.err);
  CHECK(contains(result.out, "column 5: expected "));
}

TEST_CASE("check takes y as it was before the op from the file with the result") {
  const TemporaryFolder folder;
  static_cast<void>(export_layers(folder));
  const std::string file = folder.path("cases/down.safetensors");
  const auto checked = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"check", file, "--output", file};
    words.insert(words.end(), more.begin(), more.end());
    return run_tool(words);
  };
  CHECK(checked({}).exit_code == 0);
  CHECK(checked({"--before", "y_before"}).exit_code == 0);
  CHECK(checked({"--before", "output"}).exit_code == 2);
  const ProcessResult refused = checked({"--before", "a.0"});
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.err, "the result is BF16 [3, 8, 512], must be BF16"));
}

TEST_CASE("a layer that is more than a product and one op is not exported") {
  const TemporaryFolder folder;
  const std::pair<const char*, std::vector<const char*>> kRefused[] = {
      {"{kind: row, in: 32, out: [32], bias: true}",
       {"layer.bias is true; set layer.bias false, and give `check` y with the bias as --before"}},
      {"{kind: row, in: 32, out: [32], tp: 2}", {"layer.tp is 2; set layer.tp 1, or "}},
      {"{kind: row, in: 32, out: [32], tp: 2, fully_sharded: true, bias: true}",
       {"layer.tp is 2; ", "layer.fully_sharded is true, so that h is exchanged; write each half",
        "layer.bias is true; "}},
      {"{kind: logits, in: 32, out: [32]}", {"write them as a case of op logits"}},
      {"{kind: vocab_embedding, in: 32, out: [32]}",
       {"layer.kind vocab_embedding looks rows up; write its adapters as a case of op embedding"}}};
  for (const auto& [layer, told] : kRefused) {
    CAPTURE(layer);
    const std::string scenario = folder.write(
        "one.yaml", std::string("name: one\nop: layer\nlayer: ") + layer +
                        "\nbatch.decode: 2\nadapters: {slots: 2, rank: 4}\nskew: uniform\n");
    const ProcessResult refused =
        run_tool({"export", scenario, "--backends", "cpu", "--to", folder.path("cases")});
    CHECK(refused.exit_code == 1);
    CHECK(contains(refused.err, "is a layer that is not exported:\n"));
    for (const char* const condition : told) {
      CAPTURE(refused.err);
      CHECK(contains(refused.err, condition));
    }
  }
  // Nor is any case before it.
  const std::string both =
      folder.write("both.yaml",
                   "name: both\nop: layer\nlayer: {kind: row, in: 32, out: [32]}\nbatch.decode: 2\n"
                   "adapters: {slots: 2, rank: 4}\nskew: uniform\nsweep: {layer.tp: [1, 2]}\n");
  const ProcessResult refused =
      run_tool({"export", both, "--backends", "cpu", "--to", folder.path("both")});
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.err, "case 'tp2' is a layer that is not exported"));
  CHECK(refused.out.empty());
  CHECK_FALSE(std::filesystem::exists(folder.path("both")));
}

TEST_CASE("check refuses a y before an op that has no y") {
  const TemporaryFolder folder;
  const std::string scenario =
      folder.write("shrink.yaml",
                   "name: shrinks\nop: shrink\nlayer: {in: 16, out: 16}\nbatch.decode: 2\n"
                   "adapters: {slots: 2, rank: 4}\nskew: uniform\n");
  REQUIRE(
      run_tool({"export", scenario, "--backends", "cpu", "--to", folder.path("cases")}).exit_code ==
      0);
  const std::string file = folder.path("cases/shrinks.safetensors");
  CHECK(run_tool({"check", file, "--output", file}).exit_code == 0);
  const ProcessResult refused = run_tool({"check", file, "--output", file, "--before", "output"});
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.err, "this one has no y"));
}

}  // namespace lora_bench::test
