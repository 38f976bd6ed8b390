#include <doctest/doctest.h>

#include <vector>

#include "ops/cublaslt_library.h"
#include "ops/fused_layer.h"
#include "support/device_layers.h"
#include "support/layer_case.h"
#include "support/need_gpu.h"

using namespace lora_bench;

namespace {

const std::vector<std::int64_t> kWidths = {4096, 32};

std::string told_base(const Backend& base, const LayerProblem& problem) {
  return base.numerics(shard_problem(problem, 0).base).summation.substr(0, 8);
}

}  // namespace

TEST_CASE("a base product of few rows is right, alone and where it adds what adapters add") {
  LORA_BENCH_NEED(why_no_cublaslt())
  const DeviceLayers device;
  int fused = 0;
  // The last stage of K is shorter, splits of h have no group, or adapters several slices.
  for (const LayerKind kind : {LayerKind::kColumn, LayerKind::kMergedColumn}) {
    for (const std::int64_t in_features : {32, 2112, 4096}) {
      for (const std::int64_t tokens : {1, 3, 8}) {
        LayerProblem problem = few_rows(kind, in_features, kWidths, tokens);
        for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
          for (const Overlap overlap : {Overlap::kSerial, Overlap::kDelta, Overlap::kFused}) {
            problem.lora.dtype = OperandDtypes(dtype, problem.lora.dtype[Role::kH]);
            problem.overlap = overlap;
            problem.base_bias = tokens > 3;
            CAPTURE(in_features);
            CAPTURE(tokens);
            CAPTURE(name(kind));
            CAPTURE(name(overlap));
            if (overlap == Overlap::kFused && !why_not_fused(problem, *device.base).empty()) {
              continue;
            }
            fused += overlap == Overlap::kFused ? 1 : 0;
            CHECK(told_base(*device.base, problem) == "streamed");
            device.prove(problem);
          }
        }
      }
    }
  }
  CHECK(fused > 20);
  // Columns that are no multiple of 16 go to the library.
  const LayerProblem odd = layer_problem(layer_of(LayerKind::kReplicated, 1, false));
  CHECK(told_base(*device.base, odd) != "streamed");
  CHECK_FALSE(why_not_fused(odd, *device.base).empty());
}

TEST_CASE("a layer in one launch leaves the same bits every time, and serves the next batch") {
  LORA_BENCH_NEED(why_no_cublaslt())
  const DeviceLayers device;
  LayerProblem problem = few_rows(LayerKind::kColumn, 4096, kWidths, 8);
  REQUIRE(why_not_fused(problem, *device.base).empty());
  problem.overlap = Overlap::kFused;
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  LayerEngine engine = device.engine(problem);
  load_layer(engine, problem, tensors);
  device.forward(engine);
  const Matrix first = engine.output(0);
  // Launches that begin before the one before them has ended.
  const auto replay = device.recorded(engine, 20);
  for (int replays = 0; replays < 20; ++replays) {
    engine.poison_results(0);
    replay();
    CHECK(engine.output(0) == first);
  }
  CHECK(engine.damage().empty());
  engine.activate(make_plan(std::vector<std::int32_t>(8, -1), problem.lora.slots));
  device.forward(engine);
  const Matrix none = engine.output(0);
  device.forward(engine, false);
  CHECK(engine.output(0) == none);
  engine.activate(problem.lora.plan);
  device.forward(engine);
  CHECK(engine.output(0) == first);
}
