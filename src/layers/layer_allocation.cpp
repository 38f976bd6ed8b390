#include <algorithm>

#include "layers/layer_engine.h"
#include "ops/fused_layer.h"

namespace lora_bench {

void LayerEngine::allocate(Part& part) {
  const ShardProblem& problem = part.problem;
  const Place& place = *part.place;
  Memory& memory = place.uses.memory;
  const Problem& lora = problem.lora;
  const Problem& expand = problem.expand ? *problem.expand : lora;
  const Dtype y_dtype = expand.dtype[Role::kY];
  const std::int64_t columns = problem.base.max_rank;
  const std::int64_t lanes = lora.slices() * lora.tokens;
  const auto buffer = [&](Dtype of, std::int64_t elements) {
    return GuardedBuffer(memory, bytes_of(of, elements));
  };
  part.y = buffer(y_dtype, lora.tokens * columns);
  part.base_fp32 = buffer(Dtype::kFp32, problem.base_apart ? lora.tokens * columns : 0);
  part.gathered_y = buffer(
      y_dtype, problem.y == Exchange::kGather ? lora.tokens * problem_.layer.tp * columns : 0);
  part.h = buffer(lora.dtype[Role::kH], lanes * lora.max_rank);
  part.whole_h =
      buffer(lora.dtype[Role::kH], problem.h != Exchange::kNone ? lanes * expand.max_rank : 0);
  part.delta = buffer(y_dtype, problem.delta_apart ? lora.tokens * columns : 0);
  const Problem& base_on_delta = problem.base_on_delta ? *problem.base_on_delta : problem.base;
  part.base.workspace = GuardedBuffer(
      memory, problem.looks_up ? 0
                               : std::max(place.uses.base.workspace_bytes(problem.base),
                                          place.uses.base.workspace_bytes(base_on_delta)));
  // Each half may be launched by itself.
  std::int64_t workspace_bytes = place.uses.lora.workspace_bytes(lora);
  for (const Op half : {Op::kShrink, Op::kExpand}) {
    if (half == Op::kExpand || !problem.looks_up) {
      workspace_bytes = std::max(workspace_bytes, place.uses.lora.workspace_bytes(half_of(
                                                      half == Op::kShrink ? lora : expand, half)));
    }
  }
  part.lora.workspace = GuardedBuffer(memory, workspace_bytes);
  const FusedLayer* const fused =
      problem_.overlap == Overlap::kFused ? place.uses.base.fused() : nullptr;
  part.fused =
      GuardedBuffer(memory, fused != nullptr ? fused->workspace_bytes(problem.base, lora) : 0);
  part.fused.clear();
  point_operands(part);
}

void LayerEngine::point_operands(Part& part) {
  const ShardProblem& problem = part.problem;
  const Place& place = *part.place;
  Memory& memory = place.uses.memory;
  const Problem& lora = problem.lora;
  const Dtype x_dtype = lora.dtype[Role::kX];
  // Where shards' columns lie by themselves, those of the shards before come first.
  const std::int64_t rows_before = problem.input_split ? lora.tokens : 1;
  prepare(problem.base, memory, place.base_plan, part.base);
  part.base.operands.x =
      advance(place.x.data(), bytes_of(x_dtype, rows_before * problem.shard.inputs.first));
  part.base.operands.h = problem.base_apart ? part.base_fp32.data() : part.y.data();
  part.base.operands.y = problem.base_on_delta ? part.delta.data() : nullptr;
  part.base.operands.workspace = part.base.workspace.data();
  upload_ranks(problem.base, part.base);
  prepare(lora, memory, place.lora_plan, part.lora);
  part.lora.operands.x =
      advance(place.x.data(), bytes_of(x_dtype, rows_before * problem.shard.a_inputs.first));
  part.lora.operands.h = part.h.data();
  part.lora.operands.y = problem.expand         ? nullptr
                         : problem.delta_apart  ? part.delta.data()
                         : problem.lora_after_y ? last_y(part).data()
                                                : part.y.data();
  part.lora.operands.workspace = part.lora.workspace.data();
  if (problem.expand) {
    prepare(*problem.expand, memory, place.lora_plan, part.expand);
    part.expand.operands.h = problem.h == Exchange::kNone ? part.h.data() : part.whole_h.data();
    part.expand.operands.y = part.y.data();
    part.expand.operands.workspace = part.lora.workspace.data();
  }
}

void LayerEngine::allocate_weights(Part& part) {
  const ShardProblem& problem = part.problem;
  const Problem& lora = problem.lora;
  const std::int64_t lanes_of_b = (problem.expand ? *problem.expand : lora).max_rank;
  const auto buffer = [&](Dtype dtype, std::int64_t elements) {
    return GuardedBuffer(part.place->uses.memory, bytes_of(dtype, elements));
  };
  part.w = buffer(problem.base.dtype[Role::kA],
                  problem.base.max_rank * (problem.base.in_features + problem.room));
  part.bias =
      buffer(problem.base.dtype[Role::kBias], problem.adds_bias ? problem.base.max_rank : 0);
  if (problem.shard.padding > 0) {
    part.w.clear();
    part.bias.clear();
  }
  part.base.operands.a = {part.w.data()};
  part.base.operands.b = {nullptr};
  part.base.operands.bias = {problem.base.bias ? part.bias.data() : nullptr};
  for (const std::int64_t width : lora.widths) {
    part.a.push_back(buffer(lora.dtype[Role::kA], lora.slots * lora.max_rank * lora.in_features));
    part.b.push_back(buffer(lora.dtype[Role::kB], lora.slots * width * lanes_of_b));
    // No slot holds an adapter.
    part.a.back().clear();
    part.b.back().clear();
    // Each half has its own operands and none of the other's.
    part.lora.operands.a.push_back(part.a.back().data());
    part.lora.operands.b.push_back(problem.expand ? nullptr : part.b.back().data());
    part.expand.operands.a.push_back(nullptr);
    part.expand.operands.b.push_back(part.b.back().data());
    for (Launched* launched : {&part.lora, &part.expand}) {
      launched->operands.bias.push_back(nullptr);
    }
  }
}

LayerEngine::PlanArrays LayerEngine::plan_arrays(Memory& memory, std::int64_t slots) const {
  const std::int64_t tokens = problem_.lora.tokens;
  const auto room_for = [&](const PlanArray& array) {
    if (array.values == &Plan::active_ids) {
      return slots;
    }
    return array.values == &Plan::group_starts ? slots + 1 : tokens;
  };
  PlanArrays arrays;
  for (std::size_t array = 0; array < arrays.size(); ++array) {
    arrays[array] = GuardedBuffer(
        memory, room_for(kPlanArrays[array]) * static_cast<std::int64_t>(sizeof(std::int32_t)));
  }
  return arrays;
}

void LayerEngine::prepare(const Problem& problem, Memory& memory, const PlanArrays& arrays,
                          Launched& launched) {
  const auto slots = static_cast<std::int64_t>(problem.rank.size());
  launched.rank = GuardedBuffer(memory, slots * static_cast<std::int64_t>(sizeof(std::int32_t)));
  launched.scale = GuardedBuffer(memory, slots * static_cast<std::int64_t>(sizeof(float)));
  use_plan(arrays, launched.operands);
  launched.operands.rank = static_cast<const std::int32_t*>(launched.rank.data());
  launched.operands.scale = static_cast<const float*>(launched.scale.data());
}

void LayerEngine::use_plan(const PlanArrays& arrays, Operands& operands) {
  for (std::size_t array = 0; array < arrays.size(); ++array) {
    operands.*kPlanArrays[array].address = static_cast<const std::int32_t*>(arrays[array].data());
  }
}

}  // namespace lora_bench
