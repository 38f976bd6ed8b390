#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "layers/layer_engine.h"
#include "measure/fake_clock.h"
#include "measure/layer_time.h"
#include "ops/auto_tuning.h"
#include "ops/backends.h"
#include "scenario/scenario.h"
#include "support/layer_bench.h"
#include "support/layer_case.h"
#include "support/observed_backend.h"
#include "support/timed_layer.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

// Of which shards of the layers here cut blocks of 20 columns, and of 6 rows.
constexpr std::array kForms{
    ScaleForm{WeightsScale::kTensor, 0, 0}, ScaleForm{WeightsScale::kChannel, 0, 0},
    ScaleForm{WeightsScale::kBlock, 4, 32}, ScaleForm{WeightsScale::kBlock, 6, 20}};

std::string told(const LayerProblem& problem, const ScaleForm& form) {
  return lora_bench::told(problem) + ", scale " + std::string(name(form.scale)) + " " +
         std::to_string(form.rows) + " x " + std::to_string(form.columns);
}

// The scales of a matrix in full: what each of its numbers is times.
Matrix in_full(const Matrix& matrix, const Matrix& scales, const ScaleBlocks& blocks) {
  Matrix full{Dtype::kFp32, matrix.rows, matrix.columns, {}};
  full.data.resize(static_cast<std::size_t>(matrix.rows * matrix.columns) * sizeof(float));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t column = 0; column < matrix.columns; ++column) {
      const std::int64_t block = row / blocks.rows * scales.columns + column / blocks.columns;
      store(Dtype::kFp32, full.data.data(), row * matrix.columns + column,
            load(Dtype::kFp32, scales.data.data(), block));
    }
  }
  return full;
}

// Weights of fp32 that are the scales of others.
AdapterWeights scales_in_full(const AdapterWeights& weights) {
  AdapterWeights full = weights;
  full.scales = {};
  full.a_scale.clear();
  full.b_scale.clear();
  for (std::size_t i = 0; i < weights.a.size(); ++i) {
    if (weights.a[i]) {
      const Matrix& a = *weights.a[i];
      const Matrix& b = *weights.b[i];
      full.a[i] = in_full(a, *weights.a_scale[i], weights.scales.over(a.rows, a.columns));
      full.b[i] = in_full(b, *weights.b_scale[i], weights.scales.over(b.rows, b.columns));
    }
  }
  return full;
}

std::string refused(const std::string& layer_and_weights) {
  LoadOptions options{.tuning = tuning_rules()};
  options.check_layer = layer_fault;
  try {
    static_cast<void>(
        parse_scenario("op: layer\nbatch.decode: 3\n" + layer_and_weights, "case.yaml", options));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every kind of layer is right with weights of eight bits, divided in every way") {
  const LayerBench bench;
  for (const LayerProblem& plain : all_layers()) {
    for (const ScaleForm& form : kForms) {
      const Dtype dtype = form.rows == 6 ? Dtype::kE5m2 : Dtype::kE4m3;
      const LayerProblem problem = with_eight_bits(plain, form, dtype);
      INFO(told(problem, form));
      const Verdict verdict =
          verify_layer(problem, *bench.backend, *bench.backend, *bench.memory, {.relations = true});
      CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
    }
  }
}

TEST_CASE("each number of a shard is times the scale that it is times in the whole") {
  for (const LayerProblem& plain : all_layers()) {
    for (const ScaleForm& form : kForms) {
      const LayerProblem problem = with_eight_bits(plain, form);
      INFO(told(problem, form));
      const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 5);
      const AdapterWeights whole = fit_weights(problem.layer, adapter_of(problem, tensors, 0));
      for (std::int64_t rank = 0; rank < problem.layer.tp; ++rank) {
        const AdapterWeights shard = shard_weights(problem.layer, whole, rank);
        const AdapterWeights wanted = shard_weights(problem.layer, scales_in_full(whole), rank);
        const AdapterWeights got = scales_in_full(shard);
        CHECK(got.a == wanted.a);
        CHECK(got.b == wanted.b);
        CHECK(shard.scales == shard_problem(problem, rank).lora.scale_form());
      }
    }
  }
}

TEST_CASE(
    "blocks are as they were in shards that cut none, and in others as large as they can be") {
  const auto columns = [](std::int64_t of_block, std::int64_t rank) {
    const ShardedLayer layer = layer_of(LayerKind::kRow, 4, false);  // 24 columns of 96 each
    return scales_in_shard(layer, shard_of(layer, rank), {WeightsScale::kBlock, 8, of_block})
        .columns;
  };
  CHECK(columns(12, 1) == 12);
  CHECK(columns(24, 3) == 24);
  CHECK(columns(32, 0) == 32);  // 0 to 23 lie in one block,
  CHECK(columns(32, 1) == 8);   // 24 to 47 in two that end at 32,
  CHECK(columns(32, 2) == 16);  // 48 to 71 in two that end at 64,
  CHECK(columns(32, 3) == 32);  // 72 to 95 in one
  CHECK(columns(128, 2) == 128);
  // Of one B for q, k and v a shard has rows of each: 32 of 64, and 4 of 8 twice.
  const ShardedLayer qkv = layer_of(LayerKind::kQkv, 2, false);
  const ScaleForm blocks{WeightsScale::kBlock, 16, 16};
  CHECK(scales_in_shard(qkv, shard_of(qkv, 0), blocks).rows == 4);
  ShardedLayer whole = qkv;
  whole.tp = 1;
  CHECK(scales_in_shard(whole, shard_of(whole, 0), blocks) == blocks);
}

TEST_CASE("a packed pair with scales is the same as one pair for each output") {
  const LayerBench bench;
  for (const ScaleForm& form : kForms) {
    if (form.rows == 6) {
      continue;  // no divisor of the widths
    }
    ShardedLayer layer = layer_of(LayerKind::kMergedColumn, 2, false);
    layer.widths = {16, 24, 8};
    LayerProblem packed = with_eight_bits(layer_problem(layer), form);
    packed.packed = {2, 1};
    INFO(told(packed, form));
    const LayerTensors tensors = draw_layer_tensors(packed, Fill::kBounded, 3);
    LayerProblem apart = packed;
    apart.packed.clear();
    CHECK(adapter_of(packed, tensors, 0).b_scale.size() == 2);
    CHECK(bench.run(packed, tensors) == bench.run(apart, tensors));
    const Verdict verdict = verify_layer(packed, *bench.backend, *bench.backend, *bench.memory, {});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
  }
}

TEST_CASE("scales that no adapter could have are told") {
  const auto told_of = [](const std::function<void(AdapterWeights&)>& change,
                          const ScaleForm& form = {WeightsScale::kBlock, 4, 32}) {
    ShardedLayer layer = layer_of(LayerKind::kMergedColumn, 2, false);
    layer.widths = {18, 24};
    LayerProblem problem = with_eight_bits(layer_problem(layer), form);
    const LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 3);
    AdapterWeights weights = adapter_of(problem, tensors, 0);
    change(weights);
    try {
      static_cast<void>(fit_weights(problem.layer, weights));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(told_of([](AdapterWeights&) {}) == "");
  CHECK(told_of([](AdapterWeights& weights) { weights.b_scale.pop_back(); }) ==
        "scales of 2 A and 1 B for 2 pairs that have some");
  CHECK(told_of([](AdapterWeights& weights) { weights.scales = {}; }) ==
        "scales of 2 A and 2 B for 2 pairs that have none");
  CHECK(told_of([](AdapterWeights& weights) { weights.a_scale[1].reset(); }) ==
        "A 1 has 0 x 0 scales, not 4 x 3");
  CHECK(told_of([](AdapterWeights& weights) { weights.b_scale[0]->rows = 4; }) ==
        "B 0 has 4 x 1 scales, not 5 x 1");
  const auto join = [](AdapterWeights& weights) {
    weights.a.pop_back();
    weights.a_scale.pop_back();
    weights.b_scale.pop_back();
    Matrix& b = *weights.b[0];
    const Matrix other = *weights.b[1];
    weights.b.pop_back();
    b.rows += other.rows;
    b.data.insert(b.data.end(), other.data.begin(), other.data.end());
    weights.b_scale[0] = Matrix{Dtype::kFp32, 11, 1, std::vector<std::byte>(44)};
  };
  CHECK(told_of(join) ==
        "outputs 18 to 41 of a B for several outputs begin inside a block of 4 with one scale");
}

TEST_CASE("blocks that a layer cannot divide with sense are refused with the place and the cause") {
  const std::string adapters = "adapters: {slots: 2, rank: 8}\n";
  CHECK(
      refused(adapters + "layer: {kind: row, in: 300, out: 40, tp: 4}\n"
                         "weights: {dtype: e4m3, scale: block, block: [1, 128]}\n") ==
      "case.yaml:5:45: tp 4 cuts blocks of 1 x 128 at places that leave such of 1 x 1, which have "
      "more bytes of scales than of weights; allowed: rows and columns that divide what a shard "
      "has, another layer.tp, or scales by channel");
  CHECK(refused(adapters + "layer: {kind: row, in: 300, out: 40, tp: 4}\n"
                           "weights: {dtype: e4m3, scale: block, block: [8, 128]}\n")
            .empty());
  CHECK(refused(adapters + "layer: {kind: merged_column, in: 32, out: [24, 40], packed: 2}\n"
                           "weights: {dtype: e4m3, scale: block, block: [16, 16]}\n") ==
        "case.yaml:5:45: a block of 16 outputs goes over from output 0 of width 24, into the next "
        "that layer.packed gives the same B; allowed: rows that divide the widths, or one pair for "
        "each output");
  CHECK(refused(adapters + "layer: {kind: vocab_embedding, in: 96, out: 40, extra_vocabulary: 8}\n"
                           "weights: {dtype: e4m3, scale: block, block: [16, 16]}\n") ==
        "case.yaml:5:45: blocks of 16 columns of A do not end with the vocabulary of 96 and with "
        "the 8 rows that each adapter adds to it; allowed: columns that divide both");
}

TEST_CASE("a layer that forgets new scales of its weights is found once it is timed") {
  for (const LayerKind kind :
       {LayerKind::kRow, LayerKind::kMergedQkv, LayerKind::kVocabEmbedding, LayerKind::kLogits}) {
    for (const bool honest : {true, false}) {
      const LayerProblem problem =
          with_eight_bits(layer_problem(layer_of(kind, 2, false)), kForms[1]);
      INFO(told(problem, kForms[1]));
      // The scales of B that were there in the first launch with them.
      std::map<const void*, std::vector<float>> of_first;
      const std::unique_ptr<Backend> right = make_cpu_backend({1, ""});
      const ObservedBackend keeps({.before = [&](const Problem& of, const Operands& operands) {
        if (honest || !has_expand(of.op)) {
          return true;
        }
        Operands stale = operands;
        for (std::size_t slice = 0; slice < of.widths.size(); ++slice) {
          const auto* scales = static_cast<const float*>(operands.b_scale[slice]);
          const std::int64_t count =
              of.slots * of.scales_of_b(static_cast<std::int64_t>(slice)).of_slot();
          const auto known = of_first.try_emplace(scales, scales, scales + count).first;
          stale.b_scale[slice] = known->second.data();
        }
        right->launch(of, stale, Stream{});
        return false;
      }});
      LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, 1);
      const LayerTensors untouched = tensors;
      FakeClock clock([](int, std::int64_t) { return 1e-3; });
      const Measurement result =
          timed_layer(problem, tensors, clock, keeps, so_many_samples(2), false).layer;
      CHECK_MESSAGE(result.check_passed == honest, result.check_message);
      CHECK(result.check_message.starts_with(honest ? "" : "with other scales of weights: "));
      CHECK(tensors.lora.a_scale[0].data == untouched.lora.a_scale[0].data);
      CHECK(tensors.lora.b_scale[0].data == untouched.lora.b_scale[0].data);
    }
  }
}

TEST_CASE("a launch that changes a scale of its weights is told with the shard") {
  const LayerBench bench;
  for (const bool of_a : {true, false}) {
    for (const bool fully_sharded : {false, true}) {
      const LayerProblem problem =
          with_eight_bits(layer_problem(layer_of(LayerKind::kQkv, 2, fully_sharded)), kForms[2]);
      INFO(told(problem, kForms[2]));
      const ObservedBackend changes({.after = [of_a](const Problem&, const Operands& operands) {
        const void* const scales = (of_a ? operands.a_scale : operands.b_scale)[0];
        if (scales != nullptr) {
          static_cast<float*>(const_cast<void*>(scales))[0] *= 2;
        }
      }});
      const Verdict verdict = verify_layer(problem, *bench.backend, changes, *bench.memory, {});
      CHECK(verdict.message ==
            fmt::format("memory: the launch changed scales of {} of shard 0", of_a ? "A" : "B"));
    }
  }
}
