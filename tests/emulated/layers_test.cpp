#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "layers/layer_engine.h"
#include "ops/fused_layer.h"
#include "run/select.h"
#include "support/layer_case.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

// The base product of few rows without a library beside it, which needs a GPU.
class StreamedBase final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "streamed"; }
  [[nodiscard]] std::string_view summary() const override { return ""; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts&) const override {
    return {streamed_takes(problem), "what kernels/streamed does not take"};
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return streamed_numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    launch_streamed_product(problem, operands, stream);
  }
  [[nodiscard]] const FusedLayer* fused() const override { return layer_.get(); }

 private:
  std::unique_ptr<FusedLayer> layer_ = make_streamed_layer();
};

// Where K is short, more units of 16 columns than a block keeps sums of while h is made; where it
// is two stages, a pair of units in each block and one more in some.
std::vector<std::int64_t> widths_for(std::int64_t in_features) {
  const std::int64_t units = in_features < 64 ? 132 * 9 : in_features < 2048 ? 132 * 2 + 40 : 17;
  return {16 * units, 32};
}

}  // namespace

TEST_CASE("a base product of few rows is right, alone and where it adds what adapters add") {
  const StreamedBase base;
  const Selected lora = select_backend("auto");
  const std::unique_ptr<Memory> memory = make_device_memory();
  int fused = 0;
  for (const LayerKind kind : {LayerKind::kColumn, LayerKind::kMergedColumn}) {
    for (const std::int64_t in_features : {32, 1056, 2112}) {
      for (const std::int64_t tokens : {1, 3, 8}) {
        for (const Overlap overlap : {Overlap::kSerial, Overlap::kFused}) {
          LayerProblem problem = few_rows(kind, in_features, widths_for(in_features), tokens);
          problem.lora.dtype = OperandDtypes(tokens == 8 ? Dtype::kFp16 : Dtype::kBf16,
                                             problem.lora.dtype[Role::kH]);
          problem.overlap = overlap;
          problem.base_bias = tokens > 3;
          CAPTURE(in_features);
          CAPTURE(tokens);
          CAPTURE(name(kind));
          CAPTURE(name(overlap));
          if (overlap == Overlap::kFused && !why_not_fused(problem, base).empty()) {
            continue;
          }
          fused += overlap == Overlap::kFused ? 1 : 0;
          const Verdict verdict =
              verify_layer(problem, base, *lora.backend, *memory, {.relations = false});
          CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
        }
      }
    }
  }
  CHECK(fused > 6);
}

TEST_CASE("a layer in one launch is right at ranks that are no whole vectors, and at long ones") {
  const StreamedBase base;
  const Selected lora = select_backend("auto");
  const std::unique_ptr<Memory> memory = make_device_memory();
  for (const ScaleAt scale_at : {ScaleAt::kShrink, ScaleAt::kExpand}) {
    for (const std::int64_t rank : {19, 33, 64}) {
      LayerProblem problem = few_rows(LayerKind::kColumn, 544, {272}, 2);
      problem.layer.max_rank = problem.lora.max_rank = 64;
      problem.lora.rank.assign(problem.lora.rank.size(), rank);
      problem.lora.scale_at = scale_at;
      problem.overlap = Overlap::kFused;
      CAPTURE(rank);
      CAPTURE(name(scale_at));
      REQUIRE(why_not_fused(problem, base) == "");
      const Verdict verdict =
          verify_layer(problem, base, *lora.backend, *memory, {.relations = false});
      CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    }
  }
}

// A product of h takes two eights of lanes, and four groups of K in a round.
TEST_CASE("a layer in one launch is right where adapters share a product, over many rounds of K") {
  const StreamedBase base;
  const Selected lora = select_backend("auto");
  const std::unique_ptr<Memory> memory = make_device_memory();
  for (const std::int64_t max_rank : {8, 24}) {
    LayerProblem problem = few_rows(LayerKind::kMergedColumn, 4640, {272, 32}, 4);
    problem.layer.max_rank = problem.lora.max_rank = max_rank;
    problem.lora.rank = {max_rank, 5, max_rank, 7, 5};
    problem.overlap = Overlap::kFused;
    CAPTURE(max_rank);
    REQUIRE(why_not_fused(problem, base) == "");
    const Verdict verdict =
        verify_layer(problem, base, *lora.backend, *memory, {.relations = false});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
  }
}

TEST_CASE("a layer in one launch leaves the same bits every time, and serves the next batch") {
  const StreamedBase base;
  const Selected lora = select_backend("auto");
  const std::unique_ptr<Memory> memory = make_device_memory();
  const std::unique_ptr<Communicator> communicator = make_local_communicator(Space::kDevice);
  // Of as many blocks as there may be, and of two, which clear the words of a set in many rounds.
  for (const auto& widths : {widths_for(1056), {16, 16}}) {
    CAPTURE(widths.front());
    LayerProblem problem = few_rows(LayerKind::kMergedColumn, 1056, widths, 8);
    REQUIRE(why_not_fused(problem, base).empty());
    problem.overlap = Overlap::kFused;
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    LayerEngine engine(problem, base, *lora.backend, *memory);
    load_layer(engine, problem, tensors);
    const auto after = [&](bool with_lora = true) {
      engine.poison_results(0);
      engine.forward(*communicator, Stream{}, with_lora);
      return engine.output(0);
    };
    const Matrix first = after();
    for (int launch = 0; launch < 4; ++launch) {
      CHECK(after() == first);
    }
    engine.activate(make_plan(std::vector<std::int32_t>(8, -1), problem.lora.slots));
    CHECK(after() == after(false));
    // Another batch of as many rows finds nothing of the one before.
    LayerProblem other = problem;
    other.lora.plan =
        make_plan(std::vector<std::int32_t>{1, 1, 0, 3, 0, 0, -1, 4}, other.lora.slots);
    LayerEngine fresh(other, base, *lora.backend, *memory);
    load_layer(fresh, other, tensors);
    fresh.poison_results(0);
    fresh.forward(*communicator, Stream{}, true);
    engine.activate(other.lora.plan);
    CHECK(after() == fresh.output(0));
    engine.activate(problem.lora.plan);
    CHECK(after() == first);
    CHECK(engine.damage().empty());
  }
}
