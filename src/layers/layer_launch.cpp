#include <algorithm>
#include <numeric>
#include <vector>

#include "core/dtype.h"
#include "layers/layer_engine.h"
#include "ops/exchange.h"
#include "ops/fused_layer.h"

// What one shard launches, in which order and on which stream.
namespace lora_bench {
namespace {

void add_on_host(const DeltaToAdd& added) {
  std::vector<float> y(static_cast<std::size_t>(added.columns));
  std::vector<float> delta(y.size());
  for (std::int64_t row = 0; row < added.rows; ++row) {
    const std::int32_t adapter = added.adapter_of_token[row];
    if (adapter < 0 || added.rank[adapter] == 0) {
      continue;
    }
    const std::int64_t at = bytes_of(added.dtype, row * added.stride + added.first_column);
    decode(added.dtype, advance(added.y, at), y);
    decode(added.dtype, static_cast<const char*>(added.delta) + at, delta);
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] += delta[i];
    }
    encode(added.dtype, y, advance(added.y, at));
  }
}

}  // namespace

void LayerEngine::launch_own(const Part& part, Stream stream,
                             const std::function<void(Space, Stream)>& launch) {
  const ShardPlace& place = part.place->uses;
  if (place.gpus == nullptr) {
    launch(place.memory.space(), stream);
    return;
  }
  const CurrentGpu current(static_cast<int>(place.rank));
  launch(place.memory.space(), Stream{place.gpus->stream(place.rank)});
}

void LayerEngine::run_before_h(std::int64_t rank, bool with_lora, Stream stream) {
  Part& part = at(rank);
  if (part.problem.lora_after_y) {
    launch_base(part, false, stream);
    return;
  }
  const auto launch_lora = [&](Stream on) {
    const Problem& lora = part.problem.lora;
    if (in_halves_ && lora.op == Op::kLinear) {
      launch_half(part, Op::kShrink, on);
      launch_half(part, Op::kExpand, on);
    } else {
      part.place->uses.lora.launch(lora, part.lora.operands, on);
    }
  };
  // Of a batch without adapters nothing is left to overlap, and nothing may be added.
  const bool adapted = with_lora && part.problem.lora.plan.active() > 0;
  const Overlap overlap = adapted ? problem_.overlap : Overlap::kSerial;
  if (overlap == Overlap::kFused && !in_halves_) {
    launch_fused(part, stream);
  } else if (overlap == Overlap::kEpilogue) {
    launch_lora(stream);
    launch_base(part, true, stream);
  } else if (runs_beside(overlap)) {
    SideStream& side = *part.place->side;
    launch_lora(Stream{side.fork(stream.handle)});
    launch_base(part, false, stream);
    side.join(stream.handle);
    if (overlap == Overlap::kDelta) {
      add_delta(part, stream);
    }
  } else {
    launch_base(part, false, stream);
    if (with_lora && (adapted || !part.problem.delta_apart)) {
      launch_lora(stream);
    }
  }
}

void LayerEngine::run_after_h(std::int64_t rank, Stream stream) {
  Part& part = at(rank);
  if (part.problem.expand) {
    part.place->uses.lora.launch(*part.problem.expand, part.expand.operands, stream);
  }
}

void LayerEngine::run_half(std::int64_t rank, Op half, Stream stream) {
  launch_half(at(rank), half, stream);
}

void LayerEngine::launch_half(const Part& part, Op half, Stream stream) {
  const Backend& lora = part.place->uses.lora;
  if (!part.problem.ends_here) {
    return;
  }
  if (part.problem.looks_up) {
    half == Op::kShrink ? look_up_lanes(part, stream)
                        : lora.launch(part.problem.lora, part.lora.operands, stream);
    return;
  }
  if (part.problem.expand) {
    const bool shrink = half == Op::kShrink;
    lora.launch(shrink ? part.problem.lora : *part.problem.expand,
                shrink ? part.lora.operands : part.expand.operands, stream);
    return;
  }
  lora.launch(half_of(part.problem.lora, half), operands_of_half(part, half), stream);
}

Operands LayerEngine::operands_of_half(const Part& part, Op half) {
  Operands operands = part.lora.operands;
  operands.prepared = part.prepared_halves[half == Op::kShrink ? 0 : 1].data();
  if (half == Op::kShrink) {
    operands.y = nullptr;
    std::fill(operands.b.begin(), operands.b.end(), nullptr);
    std::fill(operands.b_scale.begin(), operands.b_scale.end(), nullptr);
    std::fill(operands.bias.begin(), operands.bias.end(), nullptr);
  } else {
    operands.x = nullptr;
    std::fill(operands.a.begin(), operands.a.end(), nullptr);
    std::fill(operands.a_scale.begin(), operands.a_scale.end(), nullptr);
  }
  return operands;
}

void LayerEngine::launch_fused(const Part& part, Stream stream) {
  const FusedLayer& fused = *part.place->uses.base.fused();
  const Problem& base = part.problem.base;
  const Problem& lora = part.problem.lora;
  Operands of_lora = part.lora.operands;
  of_lora.workspace = part.fused.data();
  fused.launch(base, part.base.operands, lora, of_lora, stream);
  if (part.rest) {
    launch_rest(part, stream);
  }
}

void LayerEngine::launch_rest(const Part& part, Stream stream) {
  Problem problem = half_of(part.problem.lora, Op::kExpand);
  problem.plan = *part.rest;
  Operands operands = part.lora.operands;
  operands.x = nullptr;
  std::fill(operands.a.begin(), operands.a.end(), nullptr);
  std::fill(operands.a_scale.begin(), operands.a_scale.end(), nullptr);
  use_plan(part.place->rest_plan, operands);
  part.place->uses.lora.launch(problem, operands, stream);
}

void LayerEngine::launch_base(Part& part, bool on_delta, Stream stream) const {
  const ShardProblem& problem = part.problem;
  if (problem.looks_up) {
    look_up_base(part, stream);
    return;
  }
  const bool adds = on_delta && problem.base_on_delta;
  part.place->uses.base.launch(adds ? *problem.base_on_delta : problem.base, part.base.operands,
                               stream);
  if (problem.base_apart) {
    finish_base(part, on_delta);
  }
}

void LayerEngine::finish_base(Part& part, bool on_delta) {
  const std::int64_t columns = part.problem.base.max_rank;
  const Dtype dtype = part.problem.lora.dtype[Role::kY];
  auto* base = static_cast<float*>(part.base_fp32.data());
  std::vector<float> bias(static_cast<std::size_t>(columns));
  std::vector<float> delta(bias.size());
  if (part.problem.adds_bias) {
    decode(dtype, part.bias.data(), bias);
  }
  for (std::int64_t row = 0; row < part.problem.base.tokens; ++row) {
    float* const sums = base + row * columns;
    const std::int64_t at = bytes_of(dtype, row * columns);
    if (on_delta) {
      decode(dtype, advance(part.delta.data(), at), delta);
    }
    for (std::size_t i = 0; i < bias.size(); ++i) {
      sums[i] = sums[i] + bias[i] + delta[i];
    }
    encode(dtype, {sums, bias.size()}, advance(part.y.data(), at));
  }
}

void LayerEngine::add_delta(const Part& part, Stream stream) {
  const Problem& lora = part.problem.lora;
  const DeltaToAdd added{
      .dtype = lora.dtype[Role::kY],
      .rows = lora.tokens,
      .stride = lora.y_stride,
      .first_column = lora.offset_start,
      .columns = std::accumulate(lora.widths.begin(), lora.widths.end(), std::int64_t{0}),
      .delta = part.delta.data(),
      .y = part.y.data(),
      .adapter_of_token = part.lora.operands.adapter_of_token,
      .rank = part.lora.operands.rank};
  launch_own(part, stream, [&](Space space, Stream own) {
    if (space == Space::kHost) {
      add_on_host(added);
    } else {
      launch_add_delta(added, own);
    }
  });
}

}  // namespace lora_bench
