#include <algorithm>
#include <vector>

#include "layers/layer_engine.h"
#include "ops/vocabulary.h"

// What layers of a vocabulary do beside products.
namespace lora_bench {

void LayerEngine::allocate_order(Part& part) {
  const ShardProblem& problem = part.problem;
  Memory& memory = part.place->uses.memory;
  std::vector<std::int32_t> order;
  if (problem.y == Exchange::kGather && problem.ends_here) {
    const std::vector<std::int64_t> whole = order_of_gathered(problem_.layer);
    order.assign(whole.begin(), whole.end());
  }
  if (std::is_sorted(order.begin(), order.end())) {
    order.clear();
  }
  part.order =
      GuardedBuffer(memory, static_cast<std::int64_t>(order.size() * sizeof(std::int32_t)));
  part.order.upload(std::as_bytes(std::span(order)));
  part.ordered_y = GuardedBuffer(
      memory, bytes_of(problem.lora.dtype[Role::kY],
                       problem.lora.tokens * static_cast<std::int64_t>(order.size())));
}

const GuardedBuffer& LayerEngine::last_y(const Part& part) {
  const bool gathers = part.problem.y == Exchange::kGather && part.problem.ends_here;
  return part.order.bytes() > 0 ? part.ordered_y : gathers ? part.gathered_y : part.y;
}

void LayerEngine::look_up_base(Part& part, Stream stream) const {
  const ShardProblem& problem = part.problem;
  const TableRows read{.dtype = problem.base.dtype[Role::kA],
                       .table = part.w.data(),
                       .ids = static_cast<const std::int32_t*>(part.place->x.data()),
                       .to = part.y.data(),
                       .rows = problem.lora.tokens,
                       .columns = problem.base.max_rank,
                       .first = problem.shard.inputs.first,
                       .count = problem.shard.inputs.count,
                       .vocabulary = problem_.layer.in_features,
                       .added = part.table_rows.data(),
                       .adapter_of_token = part.lora.operands.adapter_of_token,
                       .first_added = problem.shard.extra.first,
                       .count_added = problem.shard.extra.count};
  launch_own(part, stream, [&](Space space, Stream own) { read_table(space, read, own); });
}

void LayerEngine::look_up_lanes(const Part& part, Stream stream) {
  const Problem& lora = part.problem.lora;
  const LanesById lanes{.dtype = lora.dtype[Role::kA],
                        .intermediate = lora.dtype[Role::kH],
                        .a = part.a.front().data(),
                        .a_scale = static_cast<const float*>(part.lora.operands.a_scale.front()),
                        .scales = lora.scales_of_a(),
                        .ids = static_cast<const std::int32_t*>(part.place->x.data()),
                        .adapter_of_token = part.lora.operands.adapter_of_token,
                        .rank = part.lora.operands.rank,
                        .h = part.h.data(),
                        .rows = lora.tokens,
                        .vocabulary = lora.in_features,
                        .lanes = lora.max_rank};
  launch_own(part, stream, [&](Space space, Stream own) { read_lanes(space, lanes, own); });
}

void LayerEngine::run_after_y(std::int64_t rank, bool with_lora, Stream stream) {
  Part& part = at(rank);
  const ShardProblem& problem = part.problem;
  const Problem& lora = problem.lora;
  if (!problem.ends_here) {
    return;
  }
  if (part.order.bytes() > 0) {
    const ReorderedColumns columns{.dtype = lora.dtype[Role::kY],
                                   .from = part.gathered_y.data(),
                                   .order = static_cast<const std::int32_t*>(part.order.data()),
                                   .to = part.ordered_y.data(),
                                   .rows = lora.tokens,
                                   .columns = problem_.layer.tp * problem.base.max_rank};
    launch_own(part, stream,
               [&](Space space, Stream own) { reorder_columns(space, columns, own); });
  }
  if (with_lora && problem.lora_after_y) {
    if (problem.looks_up || in_halves_) {
      launch_half(part, Op::kShrink, stream);
      launch_half(part, Op::kExpand, stream);
    } else {
      part.place->uses.lora.launch(lora, part.lora.operands, stream);
    }
  }
  if (problem_.caps()) {
    const CappedLogits logits{.dtype = lora.dtype[Role::kY],
                              .y = last_y(part).data(),
                              .rows = lora.tokens,
                              .columns = problem_.columns(),
                              .stride = lora.y_stride,
                              .cap = problem_.soft_cap,
                              .scale = problem_.logit_scale};
    launch_own(part, stream, [&](Space space, Stream own) { cap_logits(space, logits, own); });
  }
}

}  // namespace lora_bench
