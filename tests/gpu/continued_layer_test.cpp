#include <doctest/doctest.h>

#include <vector>

#include "ops/cublaslt_library.h"
#include "support/device_layers.h"
#include "support/layer_case.h"
#include "support/need_gpu.h"

using namespace lora_bench;

TEST_CASE("a layer that goes on behind its rows is right, of every kind that has room there") {
  LORA_BENCH_NEED(why_no_cublaslt())
  const DeviceLayers device;
  int proved = 0;
  for (const LayerProblem& few : all_layers()) {
    LayerProblem problem = many_rows(few, 257 + proved % 3 * 40);
    if (!why_not_fused(problem, *device.base).empty()) {
      continue;
    }
    CAPTURE(told(problem));
    problem.base_bias = proved % 2 == 1;
    problem.lora.scale_at = proved % 4 < 2 ? ScaleAt::kShrink : ScaleAt::kExpand;
    device.prove(problem);
    ++proved;
  }
  CHECK(proved > 15);
}

TEST_CASE("a layer that goes on behind its rows leaves the same bits, and serves other adapters") {
  LORA_BENCH_NEED(why_no_cublaslt())
  const DeviceLayers device;
  LayerProblem problem = layer_problem({.kind = LayerKind::kMergedColumn,
                                        .in_features = 1024,
                                        .widths = {1024, 512},
                                        .max_rank = 16});
  problem = many_rows(problem, 600);
  REQUIRE(why_not_fused(problem, *device.base).empty());
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  LayerEngine engine = device.engine(problem);
  load_layer(engine, problem, tensors);
  device.forward(engine);
  const Matrix first = engine.output(0);
  const auto replay = device.recorded(engine, 10);
  for (int replays = 0; replays < 5; ++replays) {
    engine.poison_results(0);
    replay();
    CHECK(engine.output(0) == first);
  }
  // Nothing of an adapter is left behind rows once its slot is empty.
  for (std::int64_t slot = 0; slot < problem.lora.slots; ++slot) {
    engine.reset_adapter(slot);
  }
  replay();
  const Matrix none = engine.output(0);
  CHECK_FALSE(none == first);
  load_adapters(engine, problem, tensors);
  replay();
  CHECK(engine.output(0) == first);
  CHECK(engine.damage().empty());
}
