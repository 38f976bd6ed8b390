#include "layers/layer_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "ops/fused_layer.h"

namespace lora_bench {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
}

std::vector<std::int64_t> counts(const std::vector<IndexRange>& ranges) {
  std::vector<std::int64_t> widths;
  for (const IndexRange& range : ranges) {
    widths.push_back(range.count);
  }
  return widths;
}

// Every row uses the one adapter of the base product.
Problem base_of(const LayerProblem& problem, const Shard& shard, std::int64_t columns,
                bool adds_bias, bool apart) {
  Problem base;
  base.op = Op::kShrink;
  base.dtype = problem.dtype_of_base();
  base.bias = adds_bias && problem.bias_in_product;
  base.dtype[Role::kH] = apart ? Dtype::kFp32 : problem.lora.dtype[Role::kY];
  base.add_inputs = false;
  base.tokens = problem.lora.tokens;
  base.in_features = shard.inputs.count;
  base.widths = {columns};
  base.x_stride = problem.lora.x_stride;
  base.y_stride = columns;
  base.slots = 1;
  base.max_rank = columns;
  base.rank = {columns};
  base.scale = {1.0F};
  base.plan = make_plan(std::vector<std::int32_t>(static_cast<std::size_t>(base.tokens), 0), 1);
  return base;
}

}  // namespace

OperandDtypes LayerProblem::dtype_of_base() const {
  return OperandDtypes(lora.dtype[Role::kX], lora.dtype[Role::kH]);
}

std::int64_t LayerProblem::columns() const { return sum(layer.widths); }

std::int64_t LayerProblem::whole_id(std::int64_t row, std::int64_t id) const {
  const std::int32_t slot = lora.plan.adapter_of_token[static_cast<std::size_t>(row)];
  return id < layer.in_features ? id : id + slot * layer.extra;
}

std::size_t LayerProblem::first_of_pair(std::size_t block) const {
  std::size_t first = 0;
  for (const std::int64_t blocks : packed) {
    const std::size_t past = first + static_cast<std::size_t>(blocks);
    if (block < past) {
      return first;
    }
    first = past;
  }
  return block;
}

bool LayerProblem::lacks_block(std::int64_t slot, std::size_t block) const {
  const std::size_t blocks = layer.widths.size();
  if (!missing.empty()) {
    const std::vector<std::int64_t>& lacks =
        missing[static_cast<std::size_t>(slot) % missing.size()];
    return std::count(lacks.begin(), lacks.end(), static_cast<std::int64_t>(block)) > 0;
  }
  return missing_slices && blocks > 1 && !description_of(layer.kind).joint &&
         (static_cast<std::size_t>(slot) + block) % (blocks + 1) == 0;
}

LayerProblem make_layer_problem(const ShardedLayer& layer, Problem lora) {
  LayerProblem problem{layer, std::move(lora)};
  Problem& of_whole = problem.lora;
  of_whole.op = Op::kLinear;
  of_whole.add_inputs = true;
  of_whole.in_features = layer.in_features + of_whole.slots * layer.extra;
  of_whole.widths = layer.widths;
  if (description_of(layer.kind).joint) {
    of_whole.widths = {sum(layer.widths)};
  }
  of_whole.offset_start = 0;
  of_whole.x_stride = of_whole.in_features;
  of_whole.y_stride = sum(layer.widths);
  return problem;
}

ShardedLayer sharded_layer(const Case& spec) {
  return {.kind = spec.setup.kind,
          .in_features = spec.layer.in_features,
          .widths = spec.layer.widths,
          .kv_heads = spec.setup.kv_heads,
          .max_rank = spec.adapters.max_rank,
          .tp = spec.setup.tp,
          .fully_sharded = spec.setup.fully_sharded,
          .gather_output = spec.setup.gather_output,
          .input_split = spec.setup.input_split,
          .extra = spec.setup.extra_vocabulary,
          .reduce_results = spec.setup.reduce_results,
          .padding_unit = spec.setup.padding,
          .gather_to = spec.setup.gather_to};
}

CaseStep step_of(const Case& spec) {
  const Batch batch = draw_batch(spec);
  const Adapters adapters = draw_adapters(spec);
  CaseStep step{make_problem(spec, batch, adapters), std::nullopt};
  if (spec.op == Op::kMetadata) {
    step.metadata = draw_metadata(spec, batch, adapters);
  }
  if (spec.op == Op::kQuantise) {
    step.quantise = draw_quantise(spec, step.op);
  }
  if (has_base(spec.op)) {
    LayerProblem& layer = step.layer.emplace(make_layer_problem(sharded_layer(spec), step.op));
    layer.base_bias = spec.setup.bias;
    layer.skip_bias_add = spec.setup.skip_bias;
    layer.missing_slices = spec.setup.missing_slices;
    layer.missing = spec.setup.missing;
    layer.packed = spec.setup.packed;
    layer.soft_cap = static_cast<float>(spec.setup.soft_cap);
    layer.logit_scale = static_cast<float>(spec.setup.logit_scale);
  }
  return step;
}

namespace {

Exchange exchange_of_h(const ShardedLayer& layer) {
  const LayerDescription& description = description_of(layer.kind);
  return layer.fully_sharded ? description.full->h : description.plain.h;
}

}  // namespace

std::optional<SettingFault> overlap_fault(const ShardedLayer& layer, Comm comm, Overlap overlap) {
  const auto fault = [&](const std::string& why, const char* allowed) {
    return SettingFault{"layer.overlap", fmt::format("layer.overlap {}{}", name(overlap), why),
                        allowed};
  };
  if (overlap == Overlap::kAuto || overlap == Overlap::kSerial) {
    return std::nullopt;
  }
  if (comm != Comm::kNone) {
    return fault(fmt::format(" with layer.comm {}: each GPU has one stream", name(comm)),
                 "serial or auto");
  }
  if (description_of(layer.kind).lora_after_exchange) {
    return fault(
        fmt::format(": the adapters of a {} layer add to what was exchanged", name(layer.kind)),
        "serial or auto");
  }
  const bool in_one =
      overlap == Overlap::kDelta || overlap == Overlap::kEpilogue || overlap == Overlap::kFused;
  if (in_one && exchange_of_h(layer) != Exchange::kNone) {
    return fault(": shards exchange h between shrink and expand", "serial, shrink or auto");
  }
  return std::nullopt;
}

std::string why_not_overlapped(const ShardedLayer& layer, Comm comm, Overlap overlap) {
  const auto fault = overlap_fault(layer, comm, overlap);
  return fault ? fmt::format("{}; {}", fault->what, fault->allowed) : "";
}

bool runs_beside(Overlap overlap) {
  return overlap == Overlap::kShrink || overlap == Overlap::kDelta;
}

Numerics numerics_of_adapters(const LayerProblem& problem, const ShardProblem& part,
                              const Backend& base, const Backend& lora) {
  return problem.overlap == Overlap::kFused ? base.fused()->numerics(part.base, part.lora)
                                            : lora.numerics(part.lora);
}

namespace {

// Of every shard, as it is where the base's launch makes the adapters' part.
std::vector<ShardProblem> fused_shards(LayerProblem problem) {
  problem.overlap = Overlap::kFused;
  std::vector<ShardProblem> shards;
  for (std::int64_t rank = 0; rank < problem.layer.tp; ++rank) {
    shards.push_back(shard_problem(problem, rank));
  }
  return shards;
}

bool fused_is_quicker(const LayerProblem& problem, const Backend& base) {
  const std::vector<ShardProblem> shards = fused_shards(problem);
  return std::all_of(shards.begin(), shards.end(), [&](const ShardProblem& part) {
    return base.fused()->is_quicker(part.base, part.lora);
  });
}

// Of A and B that the batch uses, in one shard.
std::int64_t adapter_bytes(const Problem& lora) {
  std::int64_t ranks = 0;
  for (const std::int32_t slot : lora.plan.active_ids) {
    ranks += slot < 0 ? 0 : lora.rank[static_cast<std::size_t>(slot)];
  }
  // Without scales: this chooses a schedule and is no floor.
  return ranks * (lora.slices() * lora.in_features * size_bytes(lora.dtype[Role::kA]) +
                  sum(lora.widths) * size_bytes(lora.dtype[Role::kB]));
}

}  // namespace

std::string why_not_fused(const LayerProblem& problem, const Backend& base) {
  if (base.fused() == nullptr) {
    return fmt::format("layer.overlap fused: base products of {} add nothing of adapters",
                       base.name());
  }
  if (std::string why = why_not_overlapped(problem.layer, Comm::kNone, Overlap::kFused);
      !why.empty()) {
    return why;
  }
  if (const Tuning& tuning = problem.lora.tuning; !tuning.empty()) {
    return fmt::format(
        "layer.overlap fused with tuning.{} {}: the base's launch makes the adapters' part, and "
        "`auto` none; another overlap, or no tuning",
        tuning.front().knob, tuning.front().value);
  }
  if (problem.lora.has_scaled_weights()) {
    return "layer.overlap fused: no base product reads weights of eight bits; another overlap";
  }
  for (const ShardProblem& part : fused_shards(problem)) {
    if (std::string why = base.fused()->why_not(part.base, part.lora); !why.empty()) {
      return why;
    }
  }
  return "";
}

Overlap chosen_overlap(Overlap asked, const LayerProblem& problem, const Backend& base,
                       bool may_fuse) {
  if (asked != Overlap::kAuto) {
    return asked;
  }
  // Beside many rows the base leaves no multiprocessor free, and a delta costs a pass over y more.
  constexpr std::int64_t kMostRows = 256;
  // What is short can hide beside the base; what takes the memory's time cannot, and the delta's
  // own pass stays (docs/layers.md).
  constexpr std::int64_t kMostBytesBeside = 40'000'000;
  const bool after_exchange = description_of(problem.layer.kind).lora_after_exchange;
  if (may_fuse && why_not_fused(problem, base).empty() && fused_is_quicker(problem, base)) {
    return Overlap::kFused;
  }
  if (base.space() == Space::kHost || problem.lora.tokens > kMostRows || after_exchange) {
    return Overlap::kSerial;
  }
  if (exchange_of_h(problem.layer) != Exchange::kNone) {
    return Overlap::kShrink;
  }
  // Beside the largest W a delta costs more than what it hides.
  constexpr std::int64_t kMostBytesOfBase = 480'000'000;
  const ShardProblem part = shard_problem(problem, 0);
  const std::int64_t base_bytes =
      part.base.max_rank * part.base.in_features * size_bytes(part.base.dtype[Role::kA]);
  return adapter_bytes(part.lora) > kMostBytesBeside || base_bytes > kMostBytesOfBase
             ? Overlap::kSerial
             : Overlap::kDelta;
}

std::int64_t rank_in(const IndexRange& lanes, std::int64_t rank) {
  return std::clamp<std::int64_t>(rank - lanes.first, 0, lanes.count);
}

namespace {

void cut_blocks(const ShardedLayer& layer, const Shard& shard, Problem& lora) {
  const ScaleForm scales = scales_in_shard(layer, shard, lora.scale_form());
  lora.block_rows = scales.rows;
  lora.block_columns = scales.columns;
}

// The adapters' part as two ops, of which shrink makes the lanes of the shard.
void part_halves(ShardProblem& part) {
  part.expand = half_of(part.lora, Op::kExpand);
  part.lora = half_of(std::move(part.lora), Op::kShrink);
  part.lora.max_rank = part.shard.lanes.count;
  for (std::int64_t& of_slot : part.lora.rank) {
    of_slot = rank_in(part.shard.lanes, of_slot);
  }
}

}  // namespace

ShardProblem shard_problem(const LayerProblem& problem, std::int64_t rank) {
  const ShardedLayer& layer = problem.layer;
  const LayerDescription& description = description_of(layer.kind);
  ShardProblem part;
  part.shard = shard_of(layer, rank);
  const Shard& shard = part.shard;
  const std::int64_t columns = sum(counts(shard.outputs)) + shard.padding;
  part.h = exchange_of_h(layer);
  part.y = layer.gather_output && description.may_gather ? Exchange::kGather
           : keeps_terms(layer)                          ? Exchange::kNone
                                                         : description.y;
  part.lora_after_y = description.lora_after_exchange;
  part.looks_up = description.looks_up;
  part.ends_here = ends_at(layer, rank);
  if (part.y == Exchange::kGather && part.lora_after_y && layer.tp == 1) {
    part.y = Exchange::kNone;
  }
  part.adds_bias = problem.adds_bias() && (description.y != Exchange::kReduce || rank == 0);
  const bool in_epilogue = problem.overlap == Overlap::kEpilogue;
  part.base_apart = (part.adds_bias || in_epilogue) && !problem.bias_in_product;
  part.base = base_of(problem, shard, columns, part.adds_bias, part.base_apart);
  part.input_split = layer.input_split && description.base == Cut::kInputs;
  if (part.input_split) {
    part.base.x_stride = shard.inputs.count;
  }

  part.lora = problem.lora;
  cut_blocks(layer, shard, part.lora);
  part.lora.bias = problem.lora.bias && adds_adapter_bias(layer, rank);
  part.lora.in_features = shard.a_inputs.count;
  part.lora.x_stride = part.base.x_stride;
  part.lora.widths = counts(shard.b_rows);
  if (description.joint) {
    part.lora.widths = {sum(part.lora.widths)};
  }
  part.lora.offset_start = shard.b_column;
  part.lora.y_stride =
      part.y == Exchange::kGather && part.lora_after_y ? layer.tp * columns : columns;
  if (part.looks_up) {
    part.lora.op = Op::kEmbedding;
    part.lora.scale_at = ScaleAt::kExpand;  // h is read, not computed
  }
  // Columns of a part of x have those of the next shard behind them.
  if (problem.overlap == Overlap::kFused && shard.inputs.count == layer.in_features) {
    part.room = room_behind_inputs(part.base, part.lora);
    part.base.x_stride += part.room;
    part.base.a_stride = part.base.x_stride;
    part.lora.x_stride += part.room;
  }
  part.delta_apart = in_epilogue || problem.overlap == Overlap::kDelta;
  part.lora.add_inputs = !part.delta_apart;
  if (in_epilogue && problem.bias_in_product) {
    part.base_on_delta = part.base;
    part.base_on_delta->add_inputs = true;
  }
  if (part.h == Exchange::kNone && problem.overlap != Overlap::kShrink) {
    return part;
  }
  part_halves(part);
  return part;
}

ExchangedBytes exchanged_bytes(const LayerProblem& problem) {
  const ShardProblem shard = shard_problem(problem, 0);
  const std::int64_t others = problem.layer.tp - 1;
  const auto sent = [&](Exchange how, std::int64_t part_bytes) {
    const bool to_first = how == Exchange::kGather && !ends_at(problem.layer, others);
    return to_first                   ? part_bytes
           : how == Exchange::kGather ? others * part_bytes
           : how == Exchange::kReduce ? 2 * others * part_bytes / problem.layer.tp
                                      : 0;
  };
  const Problem& lora = shard.lora;
  return {
      sent(shard.h, lora.slices() * lora.tokens * lora.max_rank * size_bytes(lora.dtype[Role::kH])),
      sent(shard.y, lora.tokens * shard.base.max_rank * size_bytes(lora.dtype[Role::kY]))};
}

std::vector<std::int64_t> columns_of_shard(const ShardedLayer& layer, const Shard& shard) {
  std::vector<std::int64_t> columns;
  std::int64_t block_start = 0;
  for (std::size_t block = 0; block < shard.outputs.size(); ++block) {
    for (std::int64_t i = 0; i < shard.outputs[block].count; ++i) {
      columns.push_back(block_start + shard.outputs[block].first + i);
    }
    block_start += layer.widths[block];
  }
  return columns;
}

std::vector<std::int64_t> columns_of_output(const ShardedLayer& layer, std::int64_t rank) {
  const LayerDescription& description = description_of(layer.kind);
  std::vector<std::int64_t> columns;
  if (!ends_at(layer, rank)) {
    return columns;
  }
  if (description.lora_after_exchange || (layer.gather_output && description.may_gather)) {
    columns.resize(static_cast<std::size_t>(sum(layer.widths)));
    std::iota(columns.begin(), columns.end(), 0);
    return columns;
  }
  return columns_of_shard(layer, shard_of(layer, rank));
}

}  // namespace lora_bench
