#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "layers/layer_problem.h"
#include "run/describe.h"
#include "run/run.h"
#include "scenario/scenario.h"
#include "workload/batch.h"

using namespace lora_bench;

namespace {

LoadOptions with_layers() {
  LoadOptions options;
  options.check_layer = layer_fault;
  return options;
}

std::string refusal(const std::string& text, const LoadOptions& options = with_layers()) {
  try {
    static_cast<void>(parse_scenario(text, "test.yaml", options));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

// The cases that a run of these would have, or what is wrong.
std::string chosen(const std::string& text, const std::vector<std::string>& filters,
                   const std::vector<std::string>& cases = {},
                   const std::vector<std::string>& backends = {"cpu"}) {
  LoadOptions options = with_layers();
  options.keep_refused = true;
  try {
    RunRequest request;
    request.scenarios = {parse_scenario(text, "test.yaml", options)};
    request.backends = backends;
    request.filters = filters;
    request.cases = cases;
    std::string ids;
    for (const PlannedRow& row : plan_rows(request)) {
      ids += row.spec->id + " ";
    }
    return ids;
  } catch (const UsageError& error) {
    return error.what();
  }
}

const std::string kRow =
    "op: layer\nbatch.decode: 4\nadapters: {slots: 2, rank: 8}\n"
    "layer: {kind: row, in: 12, out: 8}\n";
const std::string kShards = kRow + "sweep: {layer.tp: [1, 5, 4]}\n";
const std::string kNotBy5 =
    "test.yaml:5:23: input width 12 is not divisible by tp 5; allowed: layer.tp 1, 2, 3, 4, 6, 12";

}  // namespace

TEST_CASE("a layer that cannot be divided is told with its place and what would do") {
  CHECK(refusal(kShards) == kNotBy5);
  CHECK(refusal(kRow + "layer.tp: 3\nlayer.fully_sharded: true\n") ==
        "test.yaml:5:11: output width 8 is not divisible by tp 3; allowed: layer.tp 1, 2, 4; or "
        "layer.fully_sharded false");
  CHECK(refusal("op: layer\nbatch.decode: 4\nadapters: {slots: 2, rank: 10}\n"
                "layer: {kind: column, in: 8, out: 16, tp: 4, fully_sharded: true}\n") ==
        "test.yaml:4:43: max_rank 10 is not divisible by tp 4, and a fully sharded layer divides "
        "the rank; allowed: adapters.max_rank 12; or layer.tp 1, 2; or layer.fully_sharded false");
  CHECK(refusal("op: layer\nbatch.decode: 4\nmodel: llama-3.1-8b\nlayers: [qkv, down]\n"
                "layer.tp: 3\n") ==
        "test.yaml:5:11: layer qkv of llama-3.1-8b: of tp 3 and 8 kv heads neither divides the "
        "other; allowed: layer.tp 1, 2, 4, 8, 16, 32\n"
        "test.yaml:5:11: layer down of llama-3.1-8b: input width 14336 is not divisible by tp 3; "
        "allowed: layer.tp 1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64");
  CHECK(refusal(kRow + "layer.gather_to: first\n") ==
        "test.yaml:5:18: 'layer.gather_to' of a row layer; allowed: kind logits");
  CHECK(refusal(kRow + "layer.gather_output: true\n") ==
        "test.yaml:5:22: a row layer does not gather its output: gather_output is of column, "
        "merged and qkv layers; allowed: false");
  CHECK(refusal("op: layer\nbatch.decode: 4\nlayer: {kind: qkv, in: 8, out: [24, 12, 12], "
                "kv_heads: 5}\n") ==
        "test.yaml:3:56: 5 kv heads do not divide widths 12 and 12 of k and v; allowed: a number "
        "of kv heads that divides the widths of k and v");
  CHECK(refusal("op: layer\nbatch.decode: 4\nlayer: {kind: qkv, in: 8, out: [24, 12, 12], "
                "kv_heads: 2, v_head_size: 5}\n") ==
        "test.yaml:3:72: v of width 12 is not 2 heads of 5 columns; allowed: widths of q and k "
        "alone in layer.out, and that of v follows");
  CHECK(refusal(kRow + "layer.v_head_size: 4\n") ==
        "test.yaml:5:20: 'layer.v_head_size' of a row layer; allowed: kind qkv or merged_qkv");
  const std::string two =
      "op: layer\nbatch.decode: 4\nadapters.slots: 2\n"
      "layer: {kind: merged_column, in: 8, out: [8, 8]}\n";
  CHECK(refusal(two + "layer.missing: [[1], [], [0]]\n") ==
        "test.yaml:5:16: 3 lists for 2 slots; allowed: at most one for each slot; to sweep, put it "
        "under sweep; to mix, set adapters.slots");
  CHECK(refusal(two + "layer.packed: [1, 2]\n") ==
        "test.yaml:5:15: pairs for 1 + 2 outputs of 2; allowed: integers that add up to the "
        "outputs of layer.out");
  CHECK(refusal(two + "layer: {packed: 2, missing: [[1]]}\n") != "");
  CHECK(refusal(kRow + "layer.packed: 1\n") ==
        "test.yaml:5:15: adapters of a row layer are not packed; allowed: kinds merged_column and "
        "merged_column_variable");
  CHECK(refusal(two + "layer.missing: [[1], [2]]\n") ==
        "test.yaml:5:16: output 2 of 2 is missing; allowed: outputs of layer.out, counted from 0");
  CHECK(refusal(two + "layer.missing: [[1, 1]]\n") ==
        "test.yaml:5:16: output 1 is missing twice in one list; allowed: each once");
  CHECK(refusal(two + "layer.missing: [1]\n") ==
        "test.yaml:5:17: 'layer.missing' is '1'; allowed: lists of integers from 0 to 63, at most "
        "one for each slot");
  CHECK(refusal(two + "layer: {missing_slices: true, missing: [[1]]}\n") != "");
  CHECK(refusal(kRow + "layer.missing: [[0]]\n") ==
        "test.yaml:5:16: a row layer has one A and B for all outputs; allowed: kinds with one for "
        "each, as docs/layers.md lists them");
  // What would not help, or only of the same fault, is not advised.
  CHECK(refusal("op: layer\nbatch.decode: 4\nadapters: {slots: 2, rank: 8}\n"
                "layer: {kind: row, in: 10, out: 8, tp: 4, fully_sharded: true}\n") ==
        "test.yaml:4:40: input width 10 is not divisible by tp 4; allowed: layer.tp 1, 2");
  CHECK(refusal("op: layer\nbatch.decode: 4\nadapters: {slots: 2, rank: 8}\n"
                "layer: {kind: replicated, in: 8, out: 8, fully_sharded: true}\n") ==
        "test.yaml:4:57: a replicated layer has no fully sharded form; allowed: false");
  CHECK(refusal(kRow + "layer.comm: nccl\nlayer.overlap: shrink\n") ==
        "test.yaml:6:16: layer.overlap shrink with layer.comm nccl: each GPU has one stream; "
        "allowed: serial or auto");
  // Set by --set it stands there.
  LoadOptions set = with_layers();
  set.overrides = {"layer.tp=5"};
  CHECK(refusal(kRow, set).starts_with("--set layer.tp=5"));
}

TEST_CASE("what is wrong with a layer besides keeps how it is divided from being told") {
  const std::string told = refusal(kRow + "layer.tp: 5\nlayer.x_stride: 4\n");
  CHECK(told.find("'layer.x_stride' is 4") != std::string::npos);
  CHECK(told.find("divisible") == std::string::npos);
  CHECK(refusal(kRow + "layer.tp: 100\n").find("divisible") == std::string::npos);
}

TEST_CASE("a case that cannot be stops nothing where it is not chosen") {
  CHECK(chosen(kShards, {}) == kNotBy5);
  CHECK(chosen(kShards, {}, {"tp4"}) == "tp4 ");
  CHECK(chosen(kShards, {}, {"tp5"}) == kNotBy5);
  CHECK(chosen(kShards, {}, {"tp*"}) == kNotBy5);
  CHECK(chosen(kShards, {"tp<5"}) == "tp1 tp4 ");
  CHECK(chosen(kShards, {"layer.tp!=5"}) == "tp1 tp4 ");
  CHECK(chosen(kShards, {"case=tp1"}) == "tp1 ");
  CHECK(chosen(kShards, {"tp=5"}) == kNotBy5);
  CHECK(chosen(kShards, {"backend=cpu"}) == kNotBy5);
  CHECK(chosen(kShards, {"backend!=cpu"}).starts_with("no case is left to run"));
  // What only a drawn step tells rules out none that cannot be drawn.
  CHECK(chosen(kShards, {"bytes<1"}) == kNotBy5);
  CHECK(chosen(kShards, {"bytes<1", "tp=1"}).starts_with("no case is left to run"));
}

TEST_CASE("a case that cannot be is chosen by any of its backends, by the name that rows say") {
  const std::vector<std::string> two{"naive", "cpu"};
  for (const std::string filter : {"backend=naive", "backend=cpu", "backend!=naive"}) {
    CHECK_MESSAGE(chosen(kShards, {filter}, {}, two) == kNotBy5, filter);
  }
  CHECK(chosen(kShards, {"backend=chunked"}, {}, two).starts_with("no case is left to run"));
  // Nothing is loaded before rows are planned: any file will do.
  const std::vector<std::string> plugin{"mine=" LORA_BENCH_SOURCE_DIR "/README.md"};
  CHECK(chosen(kShards, {"backend=mine"}, {}, plugin) == kNotBy5);
  CHECK(chosen(kShards, {"backend=mine", "tp<5"}, {}, plugin) == "tp1 tp4 ");
  CHECK(chosen(kShards, {"backend!=mine"}, {}, plugin).starts_with("no case is left to run"));
}

TEST_CASE("a case that --set makes the twin of another of its name is told, though it cannot be") {
  const std::string twins = kRow + "cases: [{name: a, seed: 1}, {name: a, seed: 1, layer.tp: 5}]\n";
  LoadOptions set = with_layers();
  set.keep_refused = true;
  set.overrides = {"seed=2"};
  CHECK(refusal(twins, set).find("two cases have the id 'a'") != std::string::npos);
}

TEST_CASE("any combination that cannot be is of its case, and a value that cannot be of the file") {
  const std::string layer = "layer: {in: 8, out: 8}\nbatch.decode: 4\n";
  const std::string ranks = layer + "adapters: {slots: 2, rank: 8}\n";
  const std::string max_rank = ranks + "sweep: {adapters.max_rank: [4, 8]}\n";
  CHECK(chosen(max_rank, {}).starts_with("test.yaml:4:29: 'adapters.max_rank' is 4, but a rank"));
  CHECK(chosen(max_rank, {"case=max_rank8"}) == "max_rank8 ");
  CHECK(chosen(max_rank, {}, {"max_rank8"}) == "max_rank8 ");
  const std::string models =
      "batch.decode: 4\nlayers: qkv\nsweep: {model: [llama-3.1-8b, llama-9]}\n";
  CHECK(chosen(models, {"model=llama-3*"}) == "llama-3.1-8b ");
  CHECK(chosen(models, {}).starts_with("test.yaml:3:31: there is no model 'llama-9'"));
  // Out of range whatever else a case says, a key that is none, and two cases of one id.
  CHECK(chosen(ranks + "sweep: {adapters.max_rank: [8, 5000]}\n", {}, {"max_rank8"})
            .starts_with("test.yaml:4:32: 'adapters.max_rank' is '5000'"));
  CHECK(chosen(max_rank + "sed: 1\n", {}, {"max_rank8"}).find("unknown key 'sed'") !=
        std::string::npos);
  CHECK(chosen(layer + "cases: [{name: a}, {name: b, adapters.active: 9}, {name: c}, {name: c}]\n",
               {}, {"a"})
            .find("two cases have the id 'c'") != std::string::npos);
}

TEST_CASE("a scenario of which no case can be is refused whatever is chosen") {
  CHECK(chosen(kRow + "sweep: {layer.tp: [5, 7]}\n", {}, {"elsewhere"})
            .starts_with(kNotBy5.substr(0, 12)));
  CHECK(chosen(kShards, {}, {"elsewhere"}) ==
        "no case is left to run: --case elsewhere matches none of 3");
  // Nobody chooses for who loads a scenario without saying so.
  CHECK(refusal(kShards) == kNotBy5);
}

TEST_CASE("what a case says of itself is what its row has once it is drawn") {
  const Scenario scenario =
      parse_scenario(kRow + "tags: [x]\nno_adapter: 25%\nskew: {zipf: 1}\nseed: 7\ndtype: fp16\n",
                     "test.yaml", with_layers());
  const Case& spec = scenario.cases.front();
  const Row drawn = describe_case(spec, step_of(spec), "cpu");
  const Row said = describe_spec(spec, "cpu");
  for (const std::string_view key : columns_of_spec(spec)) {
    const Column* column = find_column(key);
    REQUIRE_MESSAGE(column != nullptr, std::string(key));
    CHECK_MESSAGE(column->before_run, std::string(key));
    CHECK_MESSAGE(column->get(said) == column->get(drawn), std::string(key));
  }
}

TEST_CASE("each column that a case says of itself has its value, of the column's type") {
  Case spec;
  spec.scenario = spec.id = spec.layer.model = spec.layer.name = "said";
  spec.point = {{"rank", "8"}};
  spec.tags = {"x"};
  spec.op = Op::kLayer;
  spec.layer.widths = {64};
  spec.layer.count = 32;
  spec.setup.tp = 2;
  spec.adapters.slots = 3;
  spec.adapters.rank.list = {8};
  spec.adapters.bias = true;
  spec.weights.dtype = Dtype::kE4m3;
  spec.weights.scale = WeightsScale::kTensor;
  spec.activations = {Dtype::kE4m3, ActivationsScale::kTensor, 0};
  spec.add_inputs = false;
  spec.no_adapter = 0.25;
  spec.seed = 7;
  const Row said = describe_spec(spec, "cpu");
  const std::vector<std::string_view> keys = columns_of_spec(spec);
  for (const std::string_view key : keys) {
    const bool told = find_column(key)->get(said) != find_column(key)->get(Row{});
    CHECK_MESSAGE(told == (key != "form"), std::string(key));  // which op metadata alone has
  }
  spec.op = Op::kMetadata;
  CHECK(describe_spec(spec, "cpu").step.form == "kernel");
  const auto says = [](const std::vector<std::string_view>& columns, std::string_view key) {
    return std::find(columns.begin(), columns.end(), key) != columns.end();
  };
  CHECK(says(keys, "out_features"));
  CHECK(says(keys, "layer_count"));
  CHECK(says(keys, "rank"));
  spec.adapters.rank = {.list = {}, .shares = {{8, 0.5}, {64, 0.5}}};  // who has 64 is drawn
  CHECK_FALSE(says(columns_of_spec(spec), "rank"));
}
