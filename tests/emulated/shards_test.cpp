#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "device/memory.h"
#include "emulated/plain_product.h"
#include "run/select.h"
#include "support/layer_case.h"
#include "verify/layer_proof.h"

using namespace lora_bench;

namespace {

void check_proved(const LayerProblem& problem) {
  static const PlainProduct base;
  static const Selected lora = select_backend("naive");
  static const std::unique_ptr<Memory> memory = make_device_memory();
  CAPTURE(told_overlap(problem));
  const Verdict verdict = verify_layer(problem, base, *lora.backend, *memory, {.relations = false});
  CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
}

Dtype dtype_in_turn(int turn) {
  return turn % 3 == 0 ? Dtype::kBf16 : turn % 3 == 1 ? Dtype::kFp16 : Dtype::kFp32;
}

}  // namespace

TEST_CASE("what shards exchange, look up, reorder and cap is right on the device") {
  int turn = 0;
  for (LayerProblem problem : all_layers()) {
    if (problem.layer.tp > 4) {
      continue;  // more of the same
    }
    problem.lora.dtype = OperandDtypes(dtype_in_turn(turn++), problem.lora.dtype[Role::kH]);
    problem.base_bias = true;
    problem.bias_in_product = true;
    if (problem.layer.kind == LayerKind::kLogits) {
      problem.soft_cap = 1.5F;
      problem.logit_scale = 0.7F;
    }
    check_proved(problem);
  }
}

TEST_CASE("weights of eight bits are right in every kind of layer on the device") {
  int turn = 0;
  for (const LayerProblem& plain : all_layers()) {
    const bool looks_up = description_of(plain.layer.kind).looks_up;
    if (plain.layer.tp > (looks_up ? 4 : 2)) {
      continue;
    }
    LayerProblem problem = plain;
    const Dtype dtype = dtype_in_turn(++turn);
    problem.lora.dtype = OperandDtypes(dtype, turn % 2 == 0 ? dtype : Dtype::kFp32);
    problem.bias_in_product = true;
    for (const ScaleForm& form :
         {ScaleForm{WeightsScale::kChannel, 0, 0}, ScaleForm{WeightsScale::kBlock, 6, 20}}) {
      check_proved(with_eight_bits(problem, form, turn % 2 == 0 ? Dtype::kE4m3 : Dtype::kE5m2));
    }
  }
}

TEST_CASE("rows that adapters add to a table are read on the device") {
  for (const std::int64_t tp : {1, 4}) {
    ShardedLayer layer = layer_of(LayerKind::kVocabEmbedding, tp, false);
    layer.extra = 7;
    check_proved(layer_problem(layer));
  }
}

TEST_CASE("columns that shards gather are put in order on the device") {
  for (const LayerKind kind : {LayerKind::kMergedColumn, LayerKind::kQkv, LayerKind::kMergedQkv}) {
    ShardedLayer layer = layer_of(kind, 4, false);
    layer.gather_output = true;
    LayerProblem problem = layer_problem(layer);
    problem.lora.bias = true;
    check_proved(problem);
  }
  ShardedLayer logits = layer_of(LayerKind::kLogits, 2, false);
  logits.gather_to = GatherTo::kFirst;
  check_proved(layer_problem(logits));
  ShardedLayer row = layer_of(LayerKind::kRow, 2, false);
  row.reduce_results = false;
  check_proved(layer_problem(row));
}

TEST_CASE("a delta that is made apart is added on the device") {
  int turn = 0;
  for (LayerProblem problem : all_overlaps()) {
    if (problem.layer.tp > 2 || problem.overlap != Overlap::kDelta) {
      continue;
    }
    problem.lora.dtype = OperandDtypes(dtype_in_turn(turn++), problem.lora.dtype[Role::kH]);
    check_proved(problem);
  }
}

TEST_CASE("a delta is added to more rows than a launch has blocks for") {
  LayerProblem problem = many_rows(all_layers().front(), 1030);
  problem.overlap = Overlap::kDelta;
  check_proved(problem);
}

TEST_CASE(
    "a layer that goes on behind its rows finds those of more adapters than a warp has lanes") {
  constexpr std::int32_t kAdapters = 40;
  LayerProblem problem = many_rows(all_layers().front(), 300);
  problem.lora.slots = kAdapters;
  problem.lora.rank.assign(kAdapters, 7);
  problem.lora.scale.assign(kAdapters, 0.5F);
  std::vector<std::int32_t> ids;
  for (std::int32_t token = 0; token < 300; ++token) {
    ids.push_back(token % 5 == 0 ? kAdapters - 1 : token * 7 % (kAdapters + 1) - 1);
  }
  problem.lora.plan = make_plan(ids, kAdapters);
  CHECK(why_not_fused(problem, PlainProduct()) == "");
  check_proved(problem);
}

TEST_CASE("a layer that goes on behind its rows adds up all of K, however many warps share it") {
  ShardedLayer layer = layer_of(LayerKind::kColumn, 1, false);
  layer.in_features = 2080;  // each block goes round more than once
  LayerProblem problem = many_rows(layer_problem(layer), 300);
  problem.lora.slots = 4;
  problem.lora.rank = {16, 3, 12, 7};
  problem.lora.scale = {2.0F, 0.5F, 1.0F, -1.0F};
  std::vector<std::int32_t> ids(300, -1);
  std::size_t next = 0;
  for (const std::size_t rows : {24, 40, 80, 150}) {  // tiles of all numbers of sharers
    const auto id = static_cast<std::int32_t>(next == 0 ? 0 : ids[next - 1] + 1);
    std::fill_n(ids.begin() + static_cast<std::ptrdiff_t>(next), rows, id);
    next += rows;
  }
  problem.lora.plan = make_plan(ids, problem.lora.slots);
  REQUIRE(why_not_fused(problem, PlainProduct()) == "");
  check_proved(problem);
}

TEST_CASE("a layer that goes on behind its rows is right") {
  const PlainProduct base;
  int proved = 0;
  for (const LayerProblem& few : all_layers()) {
    LayerProblem problem = many_rows(few, 257 + proved % 3 * 40);
    if (problem.layer.tp > 2 || !why_not_fused(problem, base).empty()) {
      continue;
    }
    problem.lora.scale_at = proved % 4 < 2 ? ScaleAt::kShrink : ScaleAt::kExpand;
    check_proved(problem);
    ++proved;
  }
  CHECK(proved > 5);
}
