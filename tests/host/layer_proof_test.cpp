#include "verify/layer_proof.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "run/case_runner.h"
#include "scenario/scenario.h"
#include "support/layer_bench.h"
#include "support/layer_case.h"
#include "support/observed_backend.h"
#include "support/wrapped_memory.h"
#include "workload/batch.h"

using namespace lora_bench;

namespace {

// Where nothing but zeros is copied in, it keeps what it held.
class ForgetsZeros final : public WrappedMemory {
 public:
  void copy_in(void* to, const void* from, std::int64_t bytes) override {
    const auto* const first = static_cast<const std::byte*>(from);
    if (std::any_of(first, first + bytes, [](std::byte byte) { return byte != std::byte{0}; })) {
      WrappedMemory::copy_in(to, from, bytes);
    }
  }
};

// All that one launch is given.
std::vector<std::byte> given(const Problem& problem, const Operands& operands) {
  std::vector<std::byte> all;
  const auto add = [&](const void* from, std::int64_t elements) {
    const auto* const first = static_cast<const std::byte*>(from);
    all.insert(all.end(), first, first + elements * size_bytes(problem.dtype[Role::kY]));
  };
  add(operands.x, problem.tokens * problem.x_stride);
  add(operands.a[0], problem.slots * problem.max_rank * problem.in_features);
  add(operands.b[0], problem.slots * problem.widths[0] * problem.max_rank);
  const auto* const scale = reinterpret_cast<const std::byte*>(operands.scale);
  all.insert(all.end(), scale, scale + problem.slots * static_cast<std::int64_t>(sizeof(float)));
  return all;
}

}  // namespace

TEST_CASE("a layer is proved in slots that held other adapters") {
  const LayerBench bench;
  LayerProblem problem = layer_problem(layer_of(LayerKind::kMergedColumn, 1, false));
  problem.missing_slices = true;
  const auto status = [&](Memory& memory) {
    return verify_layer(problem, *bench.backend, *bench.backend, memory, {}).status;
  };
  CHECK(status(*bench.memory) == Status::kPassed);
  ForgetsZeros memory;
  CHECK(status(memory) == Status::kFailed);
}

TEST_CASE("a layer that returns another bias than the one it skips fails") {
  const LayerBench bench;
  LayerProblem problem = layer_problem(layer_of(LayerKind::kRow, 2, false));
  problem.base_bias = problem.skip_bias_add = true;
  const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
  const LayerHome home = one_home(*bench.backend, *bench.backend, *bench.memory);
  const reference::LayerRows oracle = layer_oracle(
      problem, tensors, layer_arithmetic(problem, home), sample_rows(problem.lora, 256, 1));
  const auto verdict_with = [&](const Matrix& bias) {
    LayerTensors loaded = tensors;
    loaded.bias = bias;
    LayerEngine engine = bench.engine(problem);
    LayerEngine untouched = bench.engine(problem);
    load_layer(engine, problem, loaded);
    load_layer(untouched, problem, loaded);
    return prove_layer(engine, untouched, problem, tensors, oracle, home);
  };
  CHECK(verdict_with(tensors.bias).status == Status::kPassed);
  Matrix other = tensors.bias;
  other.data.back() ^= std::byte{1};
  const Verdict wrong = verdict_with(other);
  CHECK(wrong.status == Status::kFailed);
  CHECK(wrong.message == "the base's bias, which is not added, is not returned");
}

TEST_CASE("a row of a layer that was never looked at is, once it was timed") {
  const Case spec = parse_scenario(
                        "name: one\nop: layer\nlayer: {kind: row, in: 64, out: [32]}\n"
                        "batch.decode: 64\nadapters: {slots: 1, rank: 8}\nskew: identical\n"
                        "verify.max_rows: 4\n"
                        "measure: {warmup_ms: 0, min_time_ms: 1, max_time_ms: 5}\n",
                        "one.yaml", {})
                        .cases.front();
  const Problem drawn = make_problem(spec);
  const std::vector<std::int64_t> looked_at = sample_rows(drawn, 4, spec.seed);
  REQUIRE(looked_at.size() < 32);
  const auto row_of = [&](const ObservedBackend::After& spoils) {
    Targets targets;
    KeptGroundwork kept;
    const Selected selected{
        "observed", "", std::make_shared<ObservedBackend>(ObservedBackend::Hooks{.after = spoils}),
        ""};
    return run_case({.spec = spec,
                     .backend = selected,
                     .relations = false,
                     .timing = true,
                     .thresholds = {},
                     .repro = {}},
                    targets, kept);
  };
  CHECK(row_of({}).status == Status::kPassed);
  // Right for any other numbers, and in the rows that a proof of these would look at.
  std::vector<std::byte> first;
  const Row row = row_of([&](const Problem& problem, const Operands& operands) {
    const std::vector<std::byte> now = given(problem, operands);
    first = first.empty() ? now : first;
    for (std::int64_t token = 0; now == first && token < problem.tokens; ++token) {
      if (!std::binary_search(looked_at.begin(), looked_at.end(), token)) {
        store(problem.dtype[Role::kY], operands.y, token * problem.y_stride, 40);
      }
    }
  });
  CHECK(row.status == Status::kFailed);
  CHECK(row.message.find("after timing") != std::string::npos);
  CHECK(row.message.find("with other") == std::string::npos);
}
