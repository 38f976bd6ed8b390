#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "layers/layer_problem.h"
#include "layers/shard.h"
#include "scenario/schema.h"

namespace lora_bench {
namespace {

using Fault = std::optional<SettingFault>;

Fault undivided(const char* what, std::int64_t size, std::int64_t tp) {
  return SettingFault{"layer.tp", fmt::format("{} {} is not divisible by tp {}", what, size, tp),
                      ""};
}

Fault heads_fault(const ShardedLayer& layer) {
  const std::int64_t heads = layer.kv_heads;
  constexpr const char* kHeads = "a number of kv heads that divides the widths of k and v";
  if (heads < 1) {
    return SettingFault{"layer.kv_heads",
                        fmt::format("a {} layer needs kv_heads where k and v of widths {} and {} "
                                    "are not one number of heads of 128 columns",
                                    name(layer.kind), layer.widths[1], layer.widths[2]),
                        kHeads};
  }
  if (layer.widths[1] % heads != 0 || layer.widths[2] % heads != 0) {
    return SettingFault{"layer.kv_heads",
                        fmt::format("{} kv heads do not divide widths {} and {} of k and v", heads,
                                    layer.widths[1], layer.widths[2]),
                        kHeads};
  }
  if (layer.tp > heads ? layer.tp % heads != 0 : heads % layer.tp != 0) {
    return SettingFault{
        "layer.tp",
        fmt::format("of tp {} and {} kv heads neither divides the other", layer.tp, heads), ""};
  }
  const std::int64_t head = std::max<std::int64_t>(layer.widths[1] / heads, 1);
  if (layer.widths[0] % (layer.tp * head) != 0) {
    return SettingFault{"layer.tp",
                        fmt::format("width {} of q is not divisible into heads of {} for tp {}",
                                    layer.widths[0], head, layer.tp),
                        ""};
  }
  return std::nullopt;
}

Fault base_fault(const ShardedLayer& layer, const LayerDescription& description) {
  if (description.vocabulary) {
    return std::nullopt;  // padded
  }
  if (description.heads) {
    return heads_fault(layer);
  }
  if (description.base == Cut::kInputs && layer.in_features % layer.tp != 0) {
    return undivided("input width", layer.in_features, layer.tp);
  }
  for (const std::int64_t width : layer.widths) {
    if (description.base == Cut::kOutputs && width % layer.tp != 0) {
      return undivided("output width", width, layer.tp);
    }
  }
  return std::nullopt;
}

std::string outputs(std::int64_t least, std::int64_t most) {
  if (least < most) {
    return fmt::format("{} to {} outputs side by side", least, most);
  }
  return most == 1 ? "1 output" : fmt::format("{} outputs side by side", most);
}

// What a kind has not, whatever its sizes.
Fault kind_fault(const ShardedLayer& layer, const LayerDescription& description) {
  const auto blocks = static_cast<std::int64_t>(layer.widths.size());
  if (blocks < description.least_blocks || blocks > description.most_blocks) {
    return SettingFault{
        "layer.kind",
        fmt::format("a {} layer has {}, not {}", name(layer.kind),
                    outputs(description.least_blocks, description.most_blocks), blocks),
        "so many widths in layer.out, or another kind"};
  }
  if (layer.gather_output && !description.may_gather) {
    return SettingFault{
        "layer.gather_output",
        fmt::format("a {} layer does not gather its output: gather_output is of column, merged "
                    "and qkv layers",
                    name(layer.kind)),
        "false"};
  }
  if (layer.input_split && (description.base != Cut::kInputs || description.looks_up)) {
    return SettingFault{
        "layer.input_split",
        fmt::format("every shard of a {} layer has all inputs: input_split is of row layers",
                    name(layer.kind)),
        "false"};
  }
  if (!layer.reduce_results && (description.y != Exchange::kReduce || description.looks_up)) {
    return SettingFault{
        "layer.reduce_results",
        fmt::format("shards of a {} layer have no terms that they could keep: reduce_results is "
                    "of row layers",
                    name(layer.kind)),
        "true"};
  }
  if (layer.fully_sharded && !description.full) {
    return SettingFault{"layer.fully_sharded",
                        fmt::format("a {} layer has no fully sharded form", name(layer.kind)),
                        "false"};
  }
  return std::nullopt;
}

Fault full_fault(const ShardedLayer& layer, const LayerDescription& description) {
  if (description.full->a == Cut::kRank && layer.max_rank % layer.tp != 0) {
    Fault fault = undivided("max_rank", layer.max_rank, layer.tp);
    fault->what += ", and a fully sharded layer divides the rank";
    fault->allowed =
        fmt::format("adapters.max_rank {}", (layer.max_rank + layer.tp - 1) / layer.tp * layer.tp);
    return fault;
  }
  if (description.base == Cut::kInputs && layer.widths[0] % layer.tp != 0) {
    return undivided("output width", layer.widths[0], layer.tp);
  }
  return std::nullopt;
}

Fault fault_of(const ShardedLayer& layer) {
  const LayerDescription& description = description_of(layer.kind);
  if (layer.tp < 1) {
    return SettingFault{"layer.tp", fmt::format("tp {} is no number of shards", layer.tp), ""};
  }
  if (Fault fault = kind_fault(layer, description)) {
    return fault;
  }
  if (Fault fault = base_fault(layer, description)) {
    return fault;
  }
  return layer.fully_sharded ? full_fault(layer, description) : std::nullopt;
}

// Of the blocks that adapters lack.
Fault missing_fault(const Case& spec) {
  const auto fault = [](std::string what, const char* allowed) {
    return SettingFault{"layer.missing", std::move(what), allowed};
  };
  const auto blocks = static_cast<std::int64_t>(spec.layer.widths.size());
  if (!spec.setup.missing.empty() && description_of(spec.setup.kind).joint) {
    return fault(fmt::format("a {} layer has one A and B for all outputs", name(spec.setup.kind)),
                 "kinds with one for each, as docs/layers.md lists them");
  }
  for (std::vector<std::int64_t> list : spec.setup.missing) {
    std::sort(list.begin(), list.end());
    if (!list.empty() && list.back() >= blocks) {
      return fault(fmt::format("output {} of {} is missing", list.back(), blocks),
                   "outputs of layer.out, counted from 0");
    }
    const auto twice = std::adjacent_find(list.begin(), list.end());
    if (twice != list.end()) {
      return fault(fmt::format("output {} is missing twice in one list", *twice), "each once");
    }
  }
  return std::nullopt;
}

// Of pairs of A and B that cover several blocks.
Fault packed_fault(const Case& spec) {
  const std::vector<std::int64_t>& packed = spec.setup.packed;
  const auto fault = [](std::string what, const char* allowed) {
    return SettingFault{"layer.packed", std::move(what), allowed};
  };
  const auto blocks = static_cast<std::int64_t>(spec.layer.widths.size());
  if (packed.empty()) {
    return std::nullopt;
  }
  if (!takes_packed(spec.setup.kind)) {
    return fault(fmt::format("adapters of a {} layer are not packed", name(spec.setup.kind)),
                 "kinds merged_column and merged_column_variable");
  }
  if (std::accumulate(packed.begin(), packed.end(), std::int64_t{0}) != blocks) {
    return fault(fmt::format("pairs for {} outputs of {}", fmt::join(packed, " + "), blocks),
                 "integers that add up to the outputs of layer.out");
  }
  if (spec.setup.missing_slices || !spec.setup.missing.empty()) {
    return fault("packed pairs where outputs are missing", "one of both");
  }
  return std::nullopt;
}

// Of scales by blocks, which outputs that a packed pair covers and what an adapter adds to a
// vocabulary begin with a block of their own.
Fault undivided_blocks_fault(const Case& spec, const ScaleForm& scales) {
  const auto fault = [](std::string what, const char* allowed) {
    return SettingFault{"weights.block", std::move(what), allowed};
  };
  const std::int64_t extra = spec.setup.extra_vocabulary;
  if (extra > 0 && (spec.layer.in_features % scales.columns != 0 || extra % scales.columns != 0)) {
    return fault(fmt::format("blocks of {} columns of A do not end with the vocabulary of {} and "
                             "with the {} rows that each adapter adds to it",
                             scales.columns, spec.layer.in_features, extra),
                 "columns that divide both");
  }
  std::size_t block = 0;
  for (const std::int64_t covered : spec.setup.packed) {
    for (std::int64_t i = 0; i < covered; ++i, ++block) {
      if (i + 1 < covered && spec.layer.widths[block] % scales.rows != 0) {
        return fault(fmt::format("a block of {} outputs goes over from output {} of width {}, into "
                                 "the next that layer.packed gives the same B",
                                 scales.rows, block, spec.layer.widths[block]),
                     "rows that divide the widths, or one pair for each output");
      }
    }
  }
  return std::nullopt;
}

// Of scales by blocks, where shards cut these so small that nothing is gained by eight bits.
Fault scales_fault(const Case& spec, const ShardedLayer& layer) {
  if (spec.weights.scale != WeightsScale::kBlock || spec.weights.block.size() != 2) {
    return std::nullopt;  // a block that is none is told of elsewhere
  }
  const ScaleForm whole = scale_form_of(spec);
  if (Fault fault = undivided_blocks_fault(spec, whole)) {
    return fault;
  }
  constexpr std::int64_t kLeastBlock = 4;  // numbers of eight bits, as large as a scale
  for (std::int64_t rank = 0; rank < layer.tp; ++rank) {
    const ScaleForm part = scales_in_shard(layer, shard_of(layer, rank), whole);
    if (!(part == whole) && part.rows * part.columns < kLeastBlock) {
      return SettingFault{
          "weights.block",
          fmt::format("tp {} cuts blocks of {} x {} at places that leave such of {} x {}, which "
                      "have more bytes of scales than of weights",
                      layer.tp, whole.rows, whole.columns, part.rows, part.columns),
          "rows and columns that divide what a shard has, another layer.tp, or scales by channel"};
    }
  }
  return std::nullopt;
}

// Each of what would do alone, the nearest first.
std::string remedies(const ShardedLayer& layer, const std::string& nearest) {
  std::vector<std::string> all;
  if (!nearest.empty()) {
    all.push_back(nearest);
  }
  ShardedLayer other = layer;
  std::vector<std::int64_t> fitting;
  for (other.tp = 1; other.tp <= kMaxShards; ++other.tp) {
    if (!fault_of(other)) {
      fitting.push_back(other.tp);
    }
  }
  if (!fitting.empty()) {
    all.push_back(fmt::format("layer.tp {}", fmt::join(fitting, ", ")));
  }
  other = layer;
  other.fully_sharded = false;
  if (layer.fully_sharded && !fault_of(other)) {
    all.emplace_back("layer.fully_sharded false");
  }
  return fmt::format("{}", fmt::join(all, "; or "));
}

}  // namespace

std::string why_not_sharded(const ShardedLayer& layer) {
  const Fault fault = fault_of(layer);
  return fault ? fault->what : "";
}

Fault layer_fault(const Case& spec) {
  if (!has_base(spec.op)) {
    return std::nullopt;
  }
  const ShardedLayer layer = sharded_layer(spec);
  Fault fault = fault_of(layer);
  fault = fault ? fault : missing_fault(spec);
  fault = fault ? fault : packed_fault(spec);
  fault = fault ? fault : scales_fault(spec, layer);
  if (!fault) {
    return overlap_fault(layer, spec.setup.comm, spec.setup.overlap);
  }
  if (fault->key == "layer.tp") {
    fault->allowed = remedies(layer, fault->allowed);
  }
  if (!spec.layer.model.empty()) {
    fault->what = fmt::format("layer {} of {}: {}", spec.layer.name, spec.layer.model, fault->what);
  }
  return fault;
}

}  // namespace lora_bench
