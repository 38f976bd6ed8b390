#include <doctest/doctest.h>

#include <vector>

#include "core/dtype.h"
#include "layers/layer_engine.h"
#include "ops/auto_choice.h"
#include "ops/backends.h"
#include "ops/fused_layer.h"
#include "support/fused_on_host.h"
#include "support/layer_case.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

float at(const Problem& problem, const void* from, std::int64_t index) {
  return load(problem.dtype[Role::kY], from, index);
}

// Base and adapters in plain loops, rounded once.
class PlainFused final : public FusedLayer {
 public:
  explicit PlainFused(const Backend& cpu) : cpu_(cpu) {}
  [[nodiscard]] std::string why_not(const Problem&, const Problem& lora) const override {
    return lora.tokens > 9 ? "too many rows" : "";
  }
  [[nodiscard]] bool is_quicker(const Problem&, const Problem& lora) const override {
    return lora.tokens > 8;
  }
  [[nodiscard]] bool same_base(const Problem&, const Problem&) const override { return true; }
  [[nodiscard]] Numerics numerics(const Problem& base, const Problem& lora) const override {
    Numerics numerics;
    numerics.shrink_depth = base.in_features;
    numerics.expand_depth = lora.max_rank + 2;
    numerics.summation = "plain loops";
    return numerics;
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& base, const Problem&) const override {
    return base.tokens * base.max_rank * static_cast<std::int64_t>(sizeof(float));
  }
  void launch(const Problem& base, const Operands& of_base, const Problem& lora,
              const Operands& of_lora, Stream stream) const override {
    ++launches;
    auto* const sums = static_cast<float*>(of_lora.workspace);
    Problem wide = base;
    wide.dtype[Role::kH] = Dtype::kFp32;
    Operands unrounded = of_base;
    unrounded.h = sums;
    cpu_.launch(wide, unrounded, stream);
    for (std::int64_t token = 0; token < lora.tokens; ++token) {
      float* const row = sums + token * base.max_rank;
      add_adapter(lora, of_lora, token, row + lora.offset_start);
      encode(lora.dtype[Role::kY], {row, static_cast<std::size_t>(base.max_rank)},
             advance(of_base.h, bytes_of(lora.dtype[Role::kY], token * base.max_rank)));
    }
  }
  mutable int launches = 0;

 private:
  void add_adapter(const Problem& lora, const Operands& of_lora, std::int64_t token,
                   float* y) const {
    const std::int32_t id = of_lora.adapter_of_token[token];
    for (std::size_t slice = 0; id >= 0 && slice < lora.widths.size(); ++slice) {
      std::vector<float> h;
      for (std::int64_t lane = 0; lane < of_lora.rank[id]; ++lane) {
        float sum = 0;
        for (std::int64_t k = 0; k < lora.in_features; ++k) {
          sum += at(lora, of_lora.x, token * lora.x_stride + k) *
                 at(lora, of_lora.a[slice], (id * lora.max_rank + lane) * lora.in_features + k);
        }
        h.push_back(sum * of_lora.scale[id]);
      }
      for (std::int64_t column = 0; column < lora.widths[slice]; ++column) {
        const std::int64_t row = (id * lora.widths[slice] + column) * lora.max_rank;
        for (std::size_t lane = 0; lane < h.size(); ++lane) {
          *y += h[lane] * at(lora, of_lora.b[slice], row + static_cast<std::int64_t>(lane));
        }
        ++y;
      }
    }
  }
  const Backend& cpu_;
};

struct Bench {
  FusedOnHost<PlainFused> base;
  std::unique_ptr<Backend> lora = make_cpu_backend({.threads = 1, .isa = ""});
  std::unique_ptr<Memory> memory = make_host_memory();
  std::unique_ptr<Communicator> communicator = make_local_communicator(Space::kHost);
};

}  // namespace

TEST_CASE("a layer whose base adds the adapters' part is proved, integers exactly") {
  const Bench bench;
  int proved = 0;
  for (LayerProblem problem : all_layers()) {
    INFO(told(problem));
    if (!why_not_fused(problem, bench.base).empty()) {
      continue;
    }
    CHECK(chosen_overlap(Overlap::kAuto, problem, bench.base) == Overlap::kFused);
    // A backend that is to run itself is launched.
    CHECK(chosen_overlap(Overlap::kAuto, problem, bench.base, false) == Overlap::kSerial);
    problem.overlap = Overlap::kFused;
    VerifyOptions options;
    options.relations = true;
    const Verdict verdict = verify_layer(problem, bench.base, *bench.lora, *bench.memory, options);
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    CHECK(verdict.passed.front() == Level::kExact);
    ++proved;
  }
  CHECK(proved > 20);
  CHECK(bench.base.launches() > 3 * proved);
}

TEST_CASE("a sum that is rounded once is held to that, and one rounded twice is not taken for it") {
  const Bench bench;
  LayerProblem problem = layer_problem(layer_of(LayerKind::kMergedQkv, 1, false));
  problem.lora.rank = {16, 16, 16, 16, 16};
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  const auto verdict = [&](Overlap run, Overlap held_to) {
    problem.overlap = run;
    LayerEngine engine(problem, bench.base, *bench.lora, *bench.memory);
    load_layer(engine, problem, tensors);
    engine.forward(*bench.communicator, Stream{});
    problem.overlap = held_to;
    const reference::LayerArithmetic arithmetic =
        layer_arithmetic(problem, bench.base, *bench.lora);
    return compare_layer(
               engine, problem,
               layer_oracle(problem, tensors, arithmetic, sample_rows(problem.lora, 256, 1)))
        .status;
  };
  CHECK(verdict(Overlap::kFused, Overlap::kFused) == Status::kPassed);
  for (const Overlap other : {Overlap::kSerial, Overlap::kDelta, Overlap::kEpilogue}) {
    CHECK(verdict(other, Overlap::kFused) == Status::kFailed);
  }
}

TEST_CASE("a batch without adapters, and one after it, are launched as they are") {
  const Bench bench;
  LayerProblem problem = layer_problem(layer_of(LayerKind::kColumn, 2, false));
  problem.overlap = Overlap::kFused;
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  LayerEngine engine(problem, bench.base, *bench.lora, *bench.memory);
  load_layer(engine, problem, tensors);
  engine.forward(*bench.communicator, Stream{});
  const auto first = outputs_of(engine);
  const int before = bench.base.launches();
  engine.activate(make_plan(std::vector<std::int32_t>(9, -1), problem.lora.slots));
  engine.forward(*bench.communicator, Stream{});
  CHECK(bench.base.launches() == before);
  const auto none = outputs_of(engine);
  engine.forward(*bench.communicator, Stream{}, false);
  CHECK(none == outputs_of(engine));
  engine.activate(problem.lora.plan);
  engine.forward(*bench.communicator, Stream{});
  CHECK(first == outputs_of(engine));
  // Shrink and expand by themselves, where their times are asked for.
  engine.launch_halves();
  const int fused = bench.base.launches();
  engine.forward(*bench.communicator, Stream{});
  CHECK(bench.base.launches() == fused);
}

TEST_CASE("what cannot be one launch says so") {
  const Bench bench;
  const LayerProblem plain = layer_problem(layer_of(LayerKind::kMergedQkv, 4, false));
  CHECK(why_not_fused(plain, bench.base).empty());
  CHECK(why_not_fused(plain, *bench.lora) ==
        "layer.overlap fused: base products of cpu add nothing of adapters");
  const LayerProblem full = layer_problem(layer_of(LayerKind::kMergedQkv, 4, true));
  CHECK(why_not_fused(full, bench.base) ==
        "layer.overlap fused: shards exchange h between shrink and expand; serial, shrink or auto");
  CHECK(chosen_overlap(Overlap::kAuto, full, bench.base) == Overlap::kSerial);
  LayerProblem told = plain;
  told.lora.tuning =
      tuning_of({.family = AutoFamily::kPanel});  // which the base's launch would leave out
  CHECK(why_not_fused(told, bench.base).find("fused with tuning.family panel") !=
        std::string::npos);
  CHECK(chosen_overlap(Overlap::kAuto, told, bench.base) == Overlap::kSerial);
  const LayerProblem scaled = with_eight_bits(plain, {WeightsScale::kChannel, 0, 0});
  CHECK(why_not_fused(scaled, bench.base) ==
        "layer.overlap fused: no base product reads weights of eight bits; another overlap");
  CHECK(chosen_overlap(Overlap::kAuto, scaled, bench.base) == Overlap::kSerial);
  LayerProblem many = plain;
  many.lora.tokens = 10;
  CHECK(why_not_fused(many, bench.base) == "too many rows");
  LayerProblem few = plain;
  few.lora.tokens = 8;
  few.lora.plan = make_plan(std::vector<std::int32_t>(8, 1), few.lora.slots);
  CHECK(why_not_fused(few, bench.base).empty());
  CHECK(chosen_overlap(Overlap::kAuto, few, bench.base) == Overlap::kSerial);
  CHECK(chosen_overlap(Overlap::kAuto, plain, bench.base) == Overlap::kFused);
  CHECK(chosen_overlap(Overlap::kFused, many, bench.base) == Overlap::kFused);
}
