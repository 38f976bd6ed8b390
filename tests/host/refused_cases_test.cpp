#include <doctest/doctest.h>

#include <string>

#include "core/error.h"
#include "layers/layer_problem.h"
#include "scenario/scenario.h"

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
  CHECK(refusal("op: layer\nbatch.decode: 4\nmodel: llama-3.1-8b\nlayers: [qkv]\n"
                "layer.tp: 3\n") ==
        "test.yaml:5:11: layer qkv of llama-3.1-8b: of tp 3 and 8 kv heads neither divides the "
        "other; allowed: layer.tp 1, 2, 4, 8, 16, 32");
  CHECK(refusal(kRow + "layer.gather_output: true\n") ==
        "test.yaml:5:22: a row layer does not gather its output: gather_output is of column "
        "layers; allowed: false");
  CHECK(refusal("op: layer\nbatch.decode: 4\nlayer: {kind: qkv, in: 8, out: [24, 12, 12], "
                "kv_heads: 5}\n") ==
        "test.yaml:3:56: 5 kv heads do not divide widths 12 and 12 of k and v; allowed: a number "
        "of kv heads that divides the widths of k and v");
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
