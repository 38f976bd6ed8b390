#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/dtype.h"
#include "layers/layer_engine.h"
#include "ops/backends.h"
#include "ops/fused_layer.h"
#include "support/fused_on_host.h"
#include "support/layer_case.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

// Writes two parts of h and B behind x and W, and multiplies by all of it.
class PlainContinued final : public FusedLayer {
 public:
  explicit PlainContinued(const Backend& cpu) : cpu_(cpu) {}
  [[nodiscard]] std::string why_not(const Problem& base, const Problem&) const override {
    return base.a_stride > base.in_features ? "" : "no room";
  }
  [[nodiscard]] bool is_quicker(const Problem&, const Problem&) const override { return true; }
  [[nodiscard]] bool same_base(const Problem&, const Problem&) const override { return true; }
  [[nodiscard]] std::optional<Plan> left_over(const Problem& base,
                                              const Problem& lora) const override {
    return left_over_by(base, lora);
  }
  [[nodiscard]] Numerics numerics(const Problem& base, const Problem& lora) const override {
    Numerics numerics = cpu_.numerics(lora);
    constexpr std::int64_t kLost = 128;  // 2^-17 in units of 2^-24
    numerics.expand_depth = base.in_features + lanes(base, lora) + kLost;
    return numerics;
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&, const Problem& lora) const override {
    return cpu_.workspace_bytes(half_of(lora, Op::kShrink));
  }
  void launch(const Problem& base, const Operands& of_base, const Problem& lora,
              const Operands& of_lora, Stream stream) const override {
    ++launches;
    Operands shrink = of_lora;
    shrink.y = nullptr;
    std::fill(shrink.b.begin(), shrink.b.end(), nullptr);
    cpu_.launch(half_of(lora, Op::kShrink), shrink, stream);
    write_behind(base, of_base, lora, of_lora);
    Problem longer = base;
    longer.in_features += lanes(base, lora);
    const std::int64_t columns = base.max_rank;
    std::vector<float> sums(static_cast<std::size_t>(lora.tokens * columns));
    longer.dtype[Role::kH] = Dtype::kFp32;
    Operands product = of_base;
    product.h = sums.data();
    launch_dense(cpu_, longer, product, stream);
    encode(lora.dtype[Role::kY], sums, of_base.h);
  }
  mutable int launches = 0;

 private:
  static std::int64_t lanes(const Problem& base, const Problem& lora) {
    return 2 * static_cast<std::int64_t>(continued_slots_of(base, lora).size()) * lora.slices() *
           lora.max_rank;
  }
  static void put(const Problem& problem, const void* rows, std::int64_t at, float value) {
    store(problem.dtype[Role::kY], const_cast<void*>(rows), at,
          value);  // NOLINT: what lies behind rows
  }
  static void write_behind(const Problem& base, const Operands& of_base, const Problem& lora,
                           const Operands& of_lora) {
    const std::vector<std::int32_t> slots = continued_slots_of(base, lora);
    for (std::int64_t lane = 0; lane < lanes(base, lora); ++lane) {
      const std::int64_t part = lane / (lanes(base, lora) / 2);
      const std::int64_t of_slot = lane % lora.max_rank;
      const std::int64_t slice = lane / lora.max_rank % lora.slices();
      const std::int64_t block = lane / lora.max_rank / lora.slices();
      const std::int32_t slot = slots[static_cast<std::size_t>(block) % slots.size()];
      const bool used = of_slot < of_lora.rank[slot];
      std::int64_t column = -lora.offset_start;
      for (std::int64_t before = 0; before < slice; ++before) {
        column -= lora.widths[static_cast<std::size_t>(before)];
      }
      const std::int64_t width = lora.widths[static_cast<std::size_t>(slice)];
      for (std::int64_t i = 0; i < base.max_rank; ++i, ++column) {
        const bool own = used && column >= 0 && column < width;
        put(lora, of_base.a[0], i * base.a_stride + base.in_features + lane,
            own ? load(lora.dtype[Role::kB], of_lora.b[static_cast<std::size_t>(slice)],
                       (slot * width + column) * lora.max_rank + of_slot)
                : 0);
      }
      for (std::int64_t token = 0; token < lora.tokens; ++token) {
        const bool own = used && of_lora.adapter_of_token[token] == slot;
        const float h = own && width > 0
                            ? load(lora.dtype[Role::kH], of_lora.h,
                                   (slice * lora.tokens + token) * lora.max_rank + of_slot)
                            : 0;
        const std::int64_t at = token * base.x_stride + base.in_features + lane;
        put(lora, of_base.x, at, h);
        if (part == 1) {
          put(lora, of_base.x, at, h - load(lora.dtype[Role::kX], of_base.x, at));
        }
      }
    }
  }
  const Backend& cpu_;
};

using ContinuedOnHost = FusedOnHost<PlainContinued>;

// The same layer with so many rows that there is room behind them.
LayerProblem many_rows(LayerProblem problem) {
  problem.lora.tokens = 260;
  std::vector<std::int32_t> ids;
  for (std::int32_t token = 0; token < 260; ++token) {
    ids.push_back(token % 2 == 0 ? 1 : token % 12 / 2 - 1);  // half of them of one adapter
  }
  problem.lora.plan = make_plan(ids, problem.lora.slots);
  problem.overlap = Overlap::kFused;
  return problem;
}

}  // namespace

TEST_CASE("a layer that goes on behind its rows is proved, every kind that has room there") {
  const ContinuedOnHost base;
  const auto lora = make_cpu_backend({.threads = 1, .isa = ""});
  const auto memory = make_host_memory();
  int proved = 0;
  int left_over = 0;
  for (const LayerProblem& few : all_layers()) {
    const LayerProblem problem = many_rows(few);
    CAPTURE(told(problem));
    if (!why_not_fused(problem, base).empty()) {
      continue;
    }
    CHECK(chosen_overlap(Overlap::kAuto, problem, base) == Overlap::kFused);
    const ShardProblem part = shard_problem(problem, 0);
    left_over += left_over_by(part.base, part.lora) ? 1 : 0;
    const Verdict verdict = verify_layer(problem, base, *lora, *memory, {.max_rows = 24});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    CHECK(verdict.passed.front() == Level::kBounded);  // h is rounded where no one models it
    ++proved;
  }
  CHECK(proved > 15);
  CHECK(left_over > 5);
  CHECK(base.launches() >= proved);
}

TEST_CASE("where a shard has a part of each row of x there is no room behind it") {
  const ContinuedOnHost base;
  CHECK(why_not_fused(many_rows(layer_problem(layer_of(LayerKind::kRow, 2, false))), base) ==
        "no room");
  const LayerProblem whole = many_rows(layer_problem(layer_of(LayerKind::kRow, 1, false)));
  const ShardProblem part = shard_problem(whole, 0);
  CHECK(part.room == 192);  // two parts of 5 slots of 16 lanes, to whole lines
  CHECK(part.base.x_stride == 96 + 192);
  CHECK(part.lora.x_stride == part.base.x_stride);
  CHECK(part.base.a_stride == part.base.x_stride);
  LayerProblem serial = whole;
  serial.overlap = Overlap::kSerial;
  CHECK(shard_problem(serial, 0).room == 0);
}

TEST_CASE("rows of adapters that have no room are left to an expand, of each batch its own") {
  const ContinuedOnHost base;
  const auto lora = make_cpu_backend({.threads = 1, .isa = ""});
  const auto memory = make_host_memory();
  const auto communicator = make_local_communicator(Space::kHost);
  LayerProblem problem = many_rows(layer_problem(layer_of(LayerKind::kMergedQkv, 1, false)));
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  LayerEngine engine(problem, base, *lora, *memory);
  load_layer(engine, problem, tensors);
  const auto right = [&] {
    engine.forward(*communicator, Stream{});
    return compare_layer(engine, problem,
                         layer_oracle(problem, tensors, layer_arithmetic(problem, base, *lora),
                                      sample_rows(problem.lora, 64, 1)))
               .status == Status::kPassed;
  };
  CHECK(right());
  // Half of the rows had the second adapter: now the fourth, and then one that had none before.
  for (const std::int32_t most : {3, 4}) {
    std::vector<std::int32_t> ids = problem.lora.plan.adapter_of_token;
    for (std::size_t token = 0; token < ids.size(); token += 2) {
      ids[token] = most;
    }
    problem.lora.plan = make_plan(ids, problem.lora.slots);
    engine.activate(problem.lora.plan);
    CHECK(right());
  }
}

TEST_CASE("what lies behind rows is no input, and a number in a row is") {
  const ContinuedOnHost base;
  const auto lora = make_cpu_backend({.threads = 1, .isa = ""});
  const auto memory = make_host_memory();
  const auto communicator = make_local_communicator(Space::kHost);
  const LayerProblem problem = many_rows(layer_problem(layer_of(LayerKind::kColumn, 1, false)));
  LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  LayerEngine untouched(problem, base, *lora, *memory);
  load_layer(untouched, problem, tensors);
  LayerEngine engine(problem, base, *lora, *memory);
  engine.load_from(untouched);
  engine.forward(*communicator, Stream{});
  CHECK(engine.changed_input(untouched).empty());
  tensors.w.data.back() ^= std::byte{1};
  engine.load_base(tensors.w, tensors.bias);
  CHECK(engine.changed_input(untouched) == "W of shard 0");
  engine.load_from(untouched);
  tensors.lora.x.data.back() ^= std::byte{1};
  engine.set_input(tensors.lora.x.data);
  CHECK(engine.changed_input(untouched) == "x");
}
