#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "layers/layer_engine.h"
#include "measure/clock.h"
#include "ops/backends.h"
#include "ops/cublaslt_library.h"
#include "run/select.h"
#include "support/layer_case.h"
#include "support/need_gpu.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

constexpr std::int64_t kGpus = 2;

// Two GPUs with `auto` and cuBLASLt on each.
struct Pair {
  Pair() {
    for (std::int64_t rank = 0; rank < kGpus; ++rank) {
      const CurrentGpu current(static_cast<int>(rank));
      base.push_back(
          on_gpu(std::shared_ptr<const Backend>(make_base_product(Space::kDevice)), gpus, rank));
      lora.push_back(on_gpu(select_backend("auto").backend, gpus, rank));
      home.places.push_back({*base.back(), *lora.back(), *gpus->memory(rank), gpus, rank});
    }
    home.communicator = make_nccl_communicator(gpus);
  }
  std::shared_ptr<const GpuGroup> gpus = std::make_shared<const GpuGroup>(kGpus);
  std::vector<std::shared_ptr<const Backend>> base, lora;
  LayerHome home;
};

}  // namespace

TEST_CASE("every kind of layer is proved with each shard on a GPU of its own") {
  LORA_BENCH_NEED(why_no_cublaslt())
  LORA_BENCH_NEED(why_no_nccl_communicator(kGpus))
  const Pair pair;
  int proved = 0;
  for (LayerProblem problem : all_layers()) {
    if (problem.layer.tp == kGpus) {
      CAPTURE(told(problem));
      problem.base_bias = true;
      problem.bias_in_product = true;
      const Verdict verdict = verify_layer(problem, pair.home, {.relations = true});
      CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
      ++proved;
    }
  }
  CHECK(proved > 12);
}

TEST_CASE("what only some layers exchange is proved with each shard on a GPU of its own") {
  LORA_BENCH_NEED(why_no_cublaslt())
  LORA_BENCH_NEED(why_no_nccl_communicator(kGpus))
  const Pair pair;
  const auto check = [&](const ShardedLayer& layer) {
    LayerProblem problem = layer_problem(layer);
    CAPTURE(told(problem));
    problem.base_bias = !description_of(layer.kind).looks_up;
    problem.bias_in_product = true;
    problem.lora.bias = true;
    const Verdict verdict = verify_layer(problem, pair.home, {.relations = true});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
  };
  ShardedLayer logits = layer_of(LayerKind::kLogits, kGpus, false);
  logits.gather_to = GatherTo::kFirst;
  check(logits);
  for (const LayerKind kind :
       {LayerKind::kColumn, LayerKind::kMergedColumn, LayerKind::kQkv, LayerKind::kMergedQkv}) {
    ShardedLayer gathered = layer_of(kind, kGpus, true);
    gathered.gather_output = true;
    check(gathered);
  }
  for (const bool fully_sharded : {false, true}) {
    ShardedLayer row = layer_of(LayerKind::kRow, kGpus, fully_sharded);
    row.reduce_results = false;
    check(row);
  }
  ShardedLayer embedding = layer_of(LayerKind::kVocabEmbedding, kGpus, false);
  embedding.extra = 5;
  check(embedding);
}

TEST_CASE("a clock of several GPUs leaves what their launches leave") {
  LORA_BENCH_NEED(why_no_cublaslt())
  LORA_BENCH_NEED(why_no_nccl_communicator(kGpus))
  const Pair pair;
  const LayerProblem problem = layer_problem(layer_of(LayerKind::kRow, kGpus, true));
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  LayerEngine engine(problem, pair.home.places);
  load_layer(engine, problem, tensors);
  pair.home.synchronize();
  engine.forward(*pair.home.communicator, Stream{});
  pair.home.synchronize();
  const ShardOutputs launched = outputs_of(engine);
  for (const LaunchMode mode : {LaunchMode::kGraph, LaunchMode::kStream}) {
    const auto clock = make_gpu_group_clock(pair.gpus, mode);
    clock->load(0, {[&](Stream) { engine.forward(*pair.home.communicator, Stream{}); }});
    for (std::int64_t rank = 0; rank < kGpus; ++rank) {
      engine.poison_results(rank);
    }
    CHECK(clock->run_seconds(0) > 0);
    CHECK(outputs_of(engine) == launched);
  }
}
