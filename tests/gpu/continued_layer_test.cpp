#include <doctest/doctest.h>

#include <vector>

#include "layers/layer_engine.h"
#include "layers/layer_tensors.h"
#include "ops/base_product.h"
#include "ops/cublaslt_library.h"
#include "ops/fused_layer.h"
#include "run/select.h"
#include "support/layer_case.h"
#include "support/need_gpu.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

// Rows of all adapters, and some of none, in no order; ranks are ragged.
LayerProblem many_rows(LayerProblem problem, std::int64_t tokens) {
  problem.lora.tokens = tokens;
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const auto other = static_cast<std::int32_t>(token * 7 % 12 / 2) - 1;
    ids.push_back(token % 2 == 0 ? 1 : other);  // half of them of one adapter
  }
  problem.lora.plan = make_plan(ids, problem.lora.slots);
  problem.overlap = Overlap::kFused;
  problem.bias_in_product = true;
  return problem;
}

}  // namespace

TEST_CASE("a layer that goes on behind its rows is right, of every kind that has room there") {
  LORA_BENCH_NEED(why_no_cublaslt())
  const auto memory = make_device_memory();
  const auto base = make_base_product(Space::kDevice);
  const Selected lora = select_backend("auto");
  int proved = 0;
  for (const LayerProblem& few : all_layers()) {
    LayerProblem problem = many_rows(few, 257 + proved % 3 * 40);
    if (!why_not_fused(problem, *base).empty()) {
      continue;
    }
    CAPTURE(told(problem));
    problem.base_bias = proved % 2 == 1;
    problem.lora.scale_at = proved % 4 < 2 ? ScaleAt::kShrink : ScaleAt::kExpand;
    VerifyOptions options;
    options.relations = true;
    const Verdict verdict = verify_layer(problem, *base, *lora.backend, *memory, options);
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    ++proved;
  }
  CHECK(proved > 15);
}

TEST_CASE("a layer that goes on behind its rows leaves the same bits, and serves other adapters") {
  LORA_BENCH_NEED(why_no_cublaslt())
  const auto memory = make_device_memory();
  const auto base = make_base_product(Space::kDevice);
  const auto communicator = make_local_communicator(Space::kDevice);
  const Selected lora = select_backend("auto");
  LayerProblem problem = layer_problem({.kind = LayerKind::kMergedColumn,
                                        .in_features = 1024,
                                        .widths = {1024, 512},
                                        .max_rank = 16});
  problem = many_rows(problem, 600);
  REQUIRE(why_not_fused(problem, *base).empty());
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  LayerEngine engine(problem, *base, *lora.backend, *memory);
  load_layer(engine, problem, tensors);
  memory->synchronize();
  engine.forward(*communicator, Stream{});
  memory->synchronize();
  const Matrix first = engine.output(0);
  const auto replay = memory->record([&](void* stream) {
    for (int launch = 0; launch < 10; ++launch) {
      engine.forward(*communicator, Stream{stream});
    }
  });
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
