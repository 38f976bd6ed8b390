#pragma once

#include <string>
#include <vector>

#include "layers/layer_problem.h"

namespace lora_bench {

// Small layers of every kind, for tests.

inline ShardedLayer layer_of(LayerKind kind, std::int64_t tp, bool fully_sharded) {
  ShardedLayer layer{.kind = kind,
                     .in_features = 96,
                     .widths = {40},
                     .kv_heads = 2,
                     .max_rank = 16,
                     .tp = tp,
                     .fully_sharded = fully_sharded};
  const LayerDescription& description = description_of(kind);
  if (description.heads) {
    layer.widths = {64, 8, 8};
  } else if (kind == LayerKind::kMergedColumnVariable) {
    layer.widths = {16, 0, 24, 8};
  } else if (description.vocabulary) {
    layer.padding_unit = 8;
    layer.widths =
        description.looks_up ? std::vector<std::int64_t>{40} : std::vector<std::int64_t>{37, 6};
  } else if (description.most_blocks > 1) {
    layer.widths = {48, 32};
  }
  return layer;
}

// Nine tokens of adapters of ranks 16, 3, 0 and 7, two rows without one.
inline LayerProblem layer_problem(const ShardedLayer& layer, Dtype dtype = Dtype::kBf16) {
  Problem lora;
  lora.dtype = OperandDtypes(dtype);
  lora.tokens = 9;
  lora.slots = 5;
  lora.max_rank = layer.max_rank;
  lora.rank = {16, 3, 0, 7, 5};
  lora.scale = {2.0F, 0.5F, 1.0F, -1.0F, 3.0F};
  const std::vector<std::int32_t> ids{1, 0, -1, 3, 3, 0, 2, -1, 1};
  lora.plan = make_plan(ids, lora.slots);
  return make_layer_problem(layer, lora);
}

// The same whose adapters have weights of eight bits.
inline LayerProblem with_eight_bits(LayerProblem problem, const ScaleForm& scales,
                                    Dtype dtype = Dtype::kE4m3) {
  problem.lora.dtype[Role::kA] = problem.lora.dtype[Role::kB] = dtype;
  problem.lora.weights_scale = scales.scale;
  problem.lora.block_rows = scales.rows;
  problem.lora.block_columns = scales.columns;
  return problem;
}

// A layer of so many rows, of adapters in turn and of none, whose base product adds the bias.
inline LayerProblem few_rows(LayerKind kind, std::int64_t in_features,
                             const std::vector<std::int64_t>& widths, std::int64_t tokens) {
  LayerProblem problem =
      layer_problem({.kind = kind, .in_features = in_features, .widths = widths, .max_rank = 16});
  problem.lora.tokens = tokens;
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < tokens; ++token) {
    ids.push_back(static_cast<std::int32_t>(token % 6) - (tokens > 1 ? 1 : 0));
  }
  problem.lora.plan = make_plan(ids, problem.lora.slots);
  problem.bias_in_product = true;
  return problem;
}

// Rows of all adapters, few of two of them, and some of none, in no order; ranks are ragged.
inline LayerProblem many_rows(LayerProblem problem, std::int64_t tokens) {
  problem.lora.tokens = tokens;
  std::vector<std::int32_t> ids;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const auto other = static_cast<std::int32_t>(token * 7 % 8 / 2) - 1;
    const std::int32_t few = token % 64 == 5 ? 3 : token % 64 == 7 ? 4 : other;
    ids.push_back(token % 2 == 0 ? 1 : few);  // half of them of one adapter
  }
  problem.lora.plan = make_plan(ids, problem.lora.slots);
  problem.overlap = Overlap::kFused;
  problem.bias_in_product = true;
  return problem;
}

inline std::vector<LayerProblem> all_layers() {
  std::vector<LayerProblem> all;
  for (const LayerDescription& description : layer_descriptions()) {
    for (const std::int64_t tp : {1, 2, 4, 8}) {
      for (const bool fully_sharded : {false, true}) {
        const ShardedLayer layer = layer_of(description.kind, tp, fully_sharded);
        if (why_not_sharded(layer).empty()) {
          all.push_back(layer_problem(layer));
        }
        // v may have no columns, also where each of its heads has several shards.
        if (description.heads) {
          ShardedLayer without_v = layer;
          without_v.widths[2] = 0;
          all.push_back(layer_problem(without_v));
        }
      }
    }
  }
  return all;
}

inline std::string told(const LayerProblem& problem) {
  return std::string(name(problem.layer.kind)) + " tp " + std::to_string(problem.layer.tp) +
         (problem.layer.fully_sharded ? " fully sharded" : "");
}

inline std::vector<LayerProblem> all_overlaps() {
  std::vector<LayerProblem> all;
  for (LayerProblem problem : all_layers()) {
    for (const Overlap overlap : {Overlap::kShrink, Overlap::kDelta, Overlap::kEpilogue}) {
      problem.overlap = overlap;
      if (why_not_overlapped(problem.layer, Comm::kNone, overlap).empty()) {
        all.push_back(problem);
      }
    }
  }
  return all;
}

inline std::string told_overlap(const LayerProblem& problem) {
  return told(problem) + ", " + std::string(name(problem.overlap));
}

}  // namespace lora_bench
