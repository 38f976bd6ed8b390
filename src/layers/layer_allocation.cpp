#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "layers/layer_engine.h"
#include "ops/backends.h"
#include "ops/fused_layer.h"
#include "ops/operand_set.h"

namespace lora_bench {
namespace {

template <class T>
void upload(GuardedBuffer& buffer, const std::vector<T>& from) {
  buffer.upload(from.data(), static_cast<std::int64_t>(from.size() * sizeof(T)));
}

// Whether the buffer begins with these values.
template <class T>
bool begins_with(const GuardedBuffer& buffer, const std::vector<T>& values) {
  const std::vector<std::byte> held = buffer.download();
  return values.empty() || std::memcmp(held.data(), values.data(), values.size() * sizeof(T)) == 0;
}

std::vector<std::int32_t> narrow(const std::vector<std::int64_t>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

template <class SomePart>
auto LayerEngine::buffers_of(SomePart& part) {
  using Buffer = std::remove_reference_t<decltype((part.y))>;
  std::vector<Held<Buffer>> all{{"W", Use::kInput, &part.w},
                                {"bias", Use::kInput, &part.bias},
                                {"order", Use::kInput, &part.order},
                                {"added rows", Use::kInput, &part.table_rows},
                                {"y", Use::kResult, &part.y},
                                {"y in fp32", Use::kResult, &part.base_fp32},
                                {"delta", Use::kResult, &part.delta},
                                {"h", Use::kResult, &part.h},
                                {"gathered y", Use::kResult, &part.gathered_y},
                                {"ordered y", Use::kResult, &part.ordered_y},
                                {"whole h", Use::kScratch, &part.whole_h},
                                {"workspace", Use::kScratch, &part.lora.workspace},
                                {"workspace of the base", Use::kScratch, &part.base.workspace},
                                {"workspace of both", Use::kScratch, &part.fused},
                                {"prepared weights", Use::kScratch, &part.lora.prepared},
                                {"prepared weights", Use::kScratch, &part.expand.prepared},
                                {"prepared weights", Use::kScratch, &part.prepared_halves[0]},
                                {"prepared weights", Use::kScratch, &part.prepared_halves[1]}};
  for (std::size_t slice = 0; slice < part.a.size(); ++slice) {
    all.push_back({"A", Use::kInput, &part.a[slice]});
    all.push_back({"B", Use::kInput, &part.b[slice]});
    all.push_back({"bias of the adapters", Use::kInput, &part.added[slice]});
    all.push_back({"scales of A", Use::kInput, &part.a_scale[slice]});
    all.push_back({"scales of B", Use::kInput, &part.b_scale[slice]});
  }
  return all;
}

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
  const bool gathers = problem.y == Exchange::kGather && problem.ends_here;
  part.gathered_y = buffer(y_dtype, gathers ? lora.tokens * problem_.layer.tp * columns : 0);
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
  allocate_prepared(part);
}

template <class Act>
void LayerEngine::for_each_prepared(Part& part, const Act& act) {
  const ShardProblem& problem = part.problem;
  act(problem.lora, part.lora.operands, part.lora.prepared);
  if (problem.expand) {
    act(*problem.expand, part.expand.operands, part.expand.prepared);
  } else if (problem.lora.op == Op::kLinear) {
    for (const Op half : {Op::kShrink, Op::kExpand}) {
      act(half_of(problem.lora, half), operands_of_half(part, half),
          part.prepared_halves[half == Op::kShrink ? 0 : 1]);
    }
  }
}

// Room for adapters of the highest rank in every slot, whichever will be set.
void LayerEngine::allocate_prepared(Part& part) {
  const ShardPlace& place = part.place->uses;
  for_each_prepared(part, [&](Problem problem, const Operands&, GuardedBuffer& prepared) {
    std::fill(problem.rank.begin(), problem.rank.end(), problem.max_rank);
    prepared = GuardedBuffer(place.memory, prepared_bytes(place.lora, problem));
  });
  part.lora.operands.prepared = part.lora.prepared.data();
  part.expand.operands.prepared = part.expand.prepared.data();
}

void LayerEngine::prepare_weights(Part& part) {
  const ShardPlace& place = part.place->uses;
  for_each_prepared(part, [&](const Problem& problem, Operands operands, GuardedBuffer& prepared) {
    const std::int64_t wanted = prepared_bytes(place.lora, problem);
    if (wanted == 0) {
      return;
    }
    if (wanted > prepared.bytes()) {
      throw CaseError(
          fmt::format("prepared_bytes returned {} for lower ranks and {} for the highest", wanted,
                      prepared.bytes()));
    }
    operands.prepared = prepared.data();
    place.memory.enqueue_and_wait([&](void* stream) {
      lora_bench::prepare_weights(place.lora, problem, operands, Stream{stream});
    });
    place.memory.synchronize();  // on a GPU of its own the shard has another stream
  });
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
  const Problem& expand = problem.expand ? *problem.expand : lora;
  const auto buffer = [&](Dtype dtype, std::int64_t elements) {
    return GuardedBuffer(part.place->uses.memory, bytes_of(dtype, elements));
  };
  part.w = buffer(problem.base.dtype[Role::kA],
                  problem.base.max_rank * (problem.base.in_features + problem.room));
  part.bias =
      buffer(problem.base.dtype[Role::kBias], problem.adds_bias ? problem.base.max_rank : 0);
  part.table_rows = buffer(problem.base.dtype[Role::kA],
                           lora.slots * problem.shard.extra.count * problem.base.max_rank);
  part.table_rows.clear();
  if (problem.shard.padding > 0) {
    part.w.clear();
    part.bias.clear();
  }
  part.base.operands.a = {part.w.data()};
  part.base.operands.b = {nullptr};
  part.base.operands.bias = {problem.base.bias ? part.bias.data() : nullptr};
  for (const std::int64_t width : lora.widths) {
    part.a.push_back(buffer(lora.dtype[Role::kA], lora.slots * lora.max_rank * lora.in_features));
    part.b.push_back(buffer(lora.dtype[Role::kB], lora.slots * width * expand.max_rank));
    part.added.push_back(buffer(lora.dtype[Role::kBias], expand.bias ? lora.slots * width : 0));
    // No slot holds an adapter.
    part.a.back().clear();
    part.b.back().clear();
    part.added.back().clear();
    // Each half has its own operands and none of the other's.
    part.lora.operands.a.push_back(part.a.back().data());
    part.lora.operands.b.push_back(problem.expand ? nullptr : part.b.back().data());
    part.expand.operands.a.push_back(nullptr);
    part.expand.operands.b.push_back(part.b.back().data());
    const void* const added = expand.bias ? part.added.back().data() : nullptr;
    part.lora.operands.bias.push_back(problem.expand ? nullptr : added);
    part.expand.operands.bias.push_back(added);
  }
  allocate_scales(part);
}

// As A and B lie, by themselves: empty where weights have no scales.
void LayerEngine::allocate_scales(Part& part) {
  const ShardProblem& problem = part.problem;
  const Problem& lora = problem.lora;
  const Problem& expand = problem.expand ? *problem.expand : lora;
  const auto add = [&](const Problem& of, Role role, std::int64_t slice,
                       std::vector<GuardedBuffer>& buffers) -> const void* {
    const std::int64_t scales =
        lora.has_scaled_weights() ? of.slots * of.scales_of(role, slice).of_slot() : 0;
    buffers.emplace_back(part.place->uses.memory, bytes_of(of.dtype[role], scales));
    buffers.back().clear();
    return lora.has_scaled_weights() ? buffers.back().data() : nullptr;
  };
  for (std::int64_t slice = 0; slice < lora.slices(); ++slice) {
    const void* const of_a = add(lora, Role::kAScale, slice, part.a_scale);
    const void* const of_b = add(expand, Role::kBScale, slice, part.b_scale);
    part.lora.operands.a_scale.push_back(of_a);
    part.lora.operands.b_scale.push_back(problem.expand ? nullptr : of_b);
    part.expand.operands.a_scale.push_back(nullptr);
    part.expand.operands.b_scale.push_back(of_b);
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

void LayerEngine::upload_plan(const Plan& plan, PlanArrays& arrays) {
  for (std::size_t array = 0; array < arrays.size(); ++array) {
    upload(arrays[array], plan.*kPlanArrays[array].values);
  }
}

void LayerEngine::upload_ranks(const Problem& problem, Launched& launched) {
  upload(launched.rank, narrow(problem.rank));
  upload(launched.scale, problem.scale);
}

void LayerEngine::upload_ranks(Part& part) {
  upload_ranks(part.problem.lora, part.lora);
  if (part.problem.expand) {
    upload_ranks(*part.problem.expand, part.expand);
  }
}

void LayerEngine::load_from(const LayerEngine& other) {
  for (std::size_t place = 0; place < places_.size(); ++place) {
    places_[place].x.copy_from(other.places_[place].x);
  }
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    Part& part = at(rank);
    const auto from = buffers_of(other.at(rank));
    for (std::size_t index = 0; const auto& held : buffers_of(part)) {
      if (const GuardedBuffer& given = *from[index++].buffer; held.use == Use::kInput) {
        held.buffer->copy_from(given);
      }
    }
    part.problem = other.at(rank).problem;
    upload_ranks(part);
    prepare_weights(part);
  }
  activate(at(0).problem.lora.plan);
  returned_bias_ = other.returned_bias_;
}

void LayerEngine::poison_results(std::int64_t rank) {
  // A base that adds all of a delta finds 0 in rows without an adapter.
  const bool keeps_delta = problem_.overlap == Overlap::kEpilogue;
  Part& part = at(rank);
  for (const auto& held : buffers_of(part)) {
    if (held.use == Use::kResult && !(keeps_delta && held.buffer == &part.delta)) {
      held.buffer->poison();
    }
  }
}

void LayerEngine::poison_h(std::int64_t rank) { at(rank).h.poison(); }

std::string LayerEngine::damage() const {
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    for (const auto& held : buffers_of(at(rank))) {
      if (const std::string damage = held.buffer->damage(); !damage.empty()) {
        return damaged_guard(fmt::format("{} of shard {}", held.name, rank), damage);
      }
    }
  }
  for (const Place& place : places_) {
    if (const std::string damage = place.x.damage(); !damage.empty()) {
      return damaged_guard("x", damage);
    }
  }
  return "";
}

std::string LayerEngine::changed_input(const LayerEngine& other) const {
  const std::string changed = changed_buffer(other);
  return changed.empty() ? changed_index() : changed;
}

std::string LayerEngine::changed_buffer(const LayerEngine& other) const {
  // What is behind the rows of x and W is no input.
  const auto differ = [](const GuardedBuffer& one, const GuardedBuffer& another,
                         const ShardProblem& part, bool has_room) {
    const Dtype dtype = part.lora.dtype[Role::kX];
    return has_room && part.room > 0
               ? !one.same_rows(another, bytes_of(dtype, part.base.in_features),
                                bytes_of(dtype, part.room))
               : !one.same_as(another);
  };
  for (std::size_t place = 0; place < places_.size(); ++place) {
    if (differ(places_[place].x, other.places_[place].x, at(0).problem, true)) {
      return "x";
    }
  }
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    const Part& part = at(rank);
    const auto others = buffers_of(other.at(rank));
    for (std::size_t index = 0; const auto& held : buffers_of(part)) {
      const GuardedBuffer& given = *others[index++].buffer;
      if (held.use == Use::kInput &&
          differ(*held.buffer, given, part.problem, held.buffer == &part.w)) {
        return fmt::format("{} of shard {}", held.name, rank);
      }
    }
  }
  return "";
}

std::string LayerEngine::changed_index() const {
  for (const Place& place : places_) {
    for (std::size_t array = 0; array < kPlanArrays.size(); ++array) {
      const auto& [name, address, values] = kPlanArrays[array];
      if (!begins_with(place.base_plan[array], at(0).problem.base.plan.*values) ||
          !begins_with(place.lora_plan[array], at(0).problem.lora.plan.*values)) {
        return name;
      }
    }
  }
  for (std::int64_t rank = 0; rank < shards(); ++rank) {
    const Part& part = at(rank);
    const Problem& expand = part.problem.expand ? *part.problem.expand : part.problem.lora;
    for (const auto& [problem, launched] :
         {std::pair(&part.problem.base, &part.base), std::pair(&part.problem.lora, &part.lora),
          std::pair(&expand, part.problem.expand ? &part.expand : &part.lora)}) {
      if (!begins_with(launched->rank, narrow(problem->rank))) {
        return fmt::format("rank of shard {}", rank);
      }
      if (!begins_with(launched->scale, problem->scale)) {
        return fmt::format("scale of shard {}", rank);
      }
    }
  }
  return "";
}

}  // namespace lora_bench
