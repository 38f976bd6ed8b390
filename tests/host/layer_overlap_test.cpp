#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"
#include "layers/layer_engine.h"
#include "ops/backends.h"
#include "support/layer_bench.h"
#include "support/layer_case.h"
#include "support/observed_backend.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

bool same_row(const Matrix& one, const Matrix& other, std::int64_t row) {
  const std::int64_t bytes = one.columns * size_bytes(one.dtype);
  return std::equal(one.data.begin() + row * bytes, one.data.begin() + (row + 1) * bytes,
                    other.data.begin() + row * bytes);
}

}  // namespace

TEST_CASE(
    "however the adapters' part runs beside the base, the layer is proved, integers exactly") {
  const LayerBench bench;
  const std::vector<LayerProblem> all = all_overlaps();
  CHECK(all.size() > 80);
  for (LayerProblem problem : all) {
    INFO(told_overlap(problem));
    problem.base_bias = true;
    const Verdict verdict =
        verify_layer(problem, *bench.backend, *bench.backend, *bench.memory, {});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    CHECK(verdict.passed.front() == Level::kExact);
  }
}

TEST_CASE("each overlap is held to its own roundings, and not to those of another") {
  const LayerBench bench;
  LayerProblem problem = layer_problem(layer_of(LayerKind::kMergedQkv, 1, false));
  problem.lora.rank = {16, 16, 16, 16, 16};
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  const auto verdict = [&](Overlap run, Overlap held_to) {
    problem.overlap = run;
    LayerEngine engine = bench.engine(problem);
    load_layer(engine, problem, tensors);
    bench.forward(engine);
    problem.overlap = held_to;
    return bench.verdict(engine, problem, tensors).status;
  };
  for (const Overlap overlap :
       {Overlap::kSerial, Overlap::kShrink, Overlap::kDelta, Overlap::kEpilogue}) {
    CHECK(verdict(overlap, overlap) == Status::kPassed);
  }
  CHECK(verdict(Overlap::kDelta, Overlap::kSerial) == Status::kFailed);
  CHECK(verdict(Overlap::kSerial, Overlap::kEpilogue) == Status::kFailed);
  CHECK(verdict(Overlap::kEpilogue, Overlap::kSerial) == Status::kFailed);
}

TEST_CASE("a shrink beside the base changes no bit") {
  const LayerBench bench;
  for (LayerProblem problem : all_layers()) {
    INFO(told(problem));
    if (!why_not_overlapped(problem.layer, Comm::kNone, Overlap::kShrink).empty()) {
      continue;
    }
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    const std::vector<Matrix> serial = bench.run(problem, tensors);
    problem.overlap = Overlap::kShrink;
    CHECK(bench.run(problem, tensors) == serial);
  }
}

TEST_CASE("rows that lose their adapter to another batch or a reset keep nothing of its delta") {
  const LayerBench bench;
  for (const LayerProblem& problem : all_overlaps()) {
    INFO(told_overlap(problem));
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    LayerEngine engine = bench.engine(problem);
    load_layer(engine, problem, tensors);
    bench.forward(engine);
    engine.reset_adapter(1);
    const std::vector<Matrix> reset = bench.forward(engine);
    const std::vector<Matrix> alone = bench.forward(engine, false);
    for (std::size_t shard = 0; shard < alone.size(); ++shard) {
      for (const std::int64_t row : {0, 8}) {  // of that slot, of rank 3
        CHECK(same_row(reset[shard], alone[shard], row));
      }
    }
    const std::vector<std::int32_t> ids{-1, 0, 1, -1, 3, -1, 2, 1, -1};
    engine.activate(make_plan(ids, problem.lora.slots));
    const std::vector<Matrix> layer = bench.forward(engine);
    const std::vector<Matrix> base = bench.forward(engine, false);
    for (std::size_t shard = 0; shard < base.size(); ++shard) {
      for (const std::int64_t row : {0, 2, 3, 5, 6, 7, 8}) {
        CHECK(same_row(layer[shard], base[shard], row));
      }
    }
    CHECK_FALSE(layer == base);
  }
}

TEST_CASE("a batch without adapters launches the base alone") {
  const LayerBench bench;
  for (const Overlap overlap : {Overlap::kDelta, Overlap::kEpilogue}) {
    LayerProblem problem = layer_problem(layer_of(LayerKind::kColumn, 2, false));
    problem.overlap = overlap;
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    int launches = 0;
    const ObservedBackend lora({.after = [&](const Problem&, const Operands&) { ++launches; }});
    LayerEngine engine(problem, *bench.backend, lora, *bench.memory);
    load_layer(engine, problem, tensors);
    engine.activate(make_plan(std::vector<std::int32_t>(9, -1), problem.lora.slots));
    const std::vector<Matrix> layer = bench.forward(engine);
    CHECK(launches == 0);
    CHECK(layer == bench.forward(engine, false));
  }
}

TEST_CASE("a delta needs all of h where it is made") {
  const ShardedLayer plain = layer_of(LayerKind::kMergedQkv, 4, false);
  const ShardedLayer full = layer_of(LayerKind::kMergedQkv, 4, true);
  CHECK(why_not_overlapped(plain, Comm::kNone, Overlap::kDelta).empty());
  CHECK(why_not_overlapped(full, Comm::kNone, Overlap::kShrink).empty());
  CHECK(why_not_overlapped(full, Comm::kNone, Overlap::kAuto).empty());
  CHECK(why_not_overlapped(full, Comm::kNone, Overlap::kEpilogue) ==
        "layer.overlap epilogue: shards exchange h between shrink and expand; serial, shrink or "
        "auto");
  CHECK(why_not_overlapped(plain, Comm::kNccl, Overlap::kSerial).empty());
  CHECK(why_not_overlapped(plain, Comm::kNccl, Overlap::kShrink) ==
        "layer.overlap shrink with layer.comm nccl: each GPU has one stream; serial or auto");
}

// A base product of which nothing but its place is asked.
struct SomewhereElse final : Backend {
  explicit SomewhereElse(Space of) : space_of(of) {}
  Space space_of;
  [[nodiscard]] std::string_view name() const override { return "somewhere"; }
  [[nodiscard]] std::string_view summary() const override { return "for tests"; }
  [[nodiscard]] Space space() const override { return space_of; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
  [[nodiscard]] Numerics numerics(const Problem&) const override { return {}; }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem&, const Operands&, Stream) const override {}
};

TEST_CASE("what auto takes is what the layer could be asked for") {
  for (const LayerProblem& problem : all_layers()) {
    INFO(told(problem));
    for (const Space space : {Space::kHost, Space::kDevice}) {
      const Overlap chosen = chosen_overlap(Overlap::kAuto, problem, SomewhereElse(space));
      CHECK(chosen != Overlap::kAuto);
      CHECK(why_not_overlapped(problem.layer, Comm::kNone, chosen).empty());
    }
  }
}

TEST_CASE("auto puts few rows beside the base on a device, and no others") {
  const SomewhereElse host(Space::kHost);
  const SomewhereElse device(Space::kDevice);
  LayerProblem problem = layer_problem(layer_of(LayerKind::kMergedQkv, 4, false));
  CHECK(chosen_overlap(Overlap::kAuto, problem, host) == Overlap::kSerial);
  CHECK(chosen_overlap(Overlap::kAuto, problem, device) == Overlap::kDelta);
  CHECK(chosen_overlap(Overlap::kShrink, problem, device) == Overlap::kShrink);
  LayerProblem many = problem;  // bytes of adapters, far above those of a step
  many.layer.in_features = many.lora.in_features = std::int64_t{1} << 21;
  CHECK(chosen_overlap(Overlap::kAuto, many, device) == Overlap::kSerial);
  many.lora.plan = make_plan(std::vector<std::int32_t>(9, -1), many.lora.slots);
  CHECK(chosen_overlap(Overlap::kAuto, many, device) == Overlap::kDelta);
  many.layer.in_features = many.lora.in_features = std::int64_t{1} << 24;  // W of 671 MB
  CHECK(chosen_overlap(Overlap::kAuto, many, device) == Overlap::kSerial);
  problem.lora.tokens = 2048;
  CHECK(chosen_overlap(Overlap::kAuto, problem, device) == Overlap::kSerial);
  problem = layer_problem(layer_of(LayerKind::kMergedQkv, 4, true));
  CHECK(chosen_overlap(Overlap::kAuto, problem, device) == Overlap::kShrink);
}
