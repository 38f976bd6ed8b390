#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/named.h"
#include "scenario/case.h"

namespace lora_bench {

// The dimension along which the shards of a layer divide a weight; kNone = each has all of it.
// kOutputs divides each block of outputs by itself.
enum class Cut : std::uint8_t { kNone, kInputs, kOutputs, kRank };

// What shards do with a result that each has a part of: columns (gather) or a term (reduce).
enum class Exchange : std::uint8_t { kNone, kGather, kReduce };

// How A [rank, K] and B [N, rank] are divided, and what happens to h between them.
struct LoraSharding {
  Cut a = Cut::kNone;
  Cut b = Cut::kNone;
  Exchange h = Exchange::kNone;
};

// A kind of layer as data: the engine and the sharding read nothing else. *Blocks* are outputs of
// the base that stand side by side (q, k, v; gate, up; vocabulary, added vocabulary of logits).
struct LayerDescription {
  LayerKind kind = LayerKind::kReplicated;
  Cut base = Cut::kNone;             // of W [N, K]
  Exchange y = Exchange::kNone;      // of the base's result, LoRA's part in it
  bool may_gather = false;           // y's columns are gathered where that is asked for
  bool lora_after_exchange = false;  // on the whole y, by every shard alike
  std::int64_t least_blocks = 1, most_blocks = 1;
  bool joint = true;   // one A and one B for all blocks, else one each, of which any may miss
  bool heads = false;  // blocks are q, k, v; k and v are replicated when tp exceeds their heads
  bool vocabulary = false;  // what is divided need not divide: shards of outputs are padded
  bool looks_up = false;    // x is a row of ids: W and A are read there, nothing is multiplied
  LoraSharding plain;
  std::optional<LoraSharding> full;  // S-LoRA's; none = the kind has no such form
};

constexpr std::int64_t kMostBlocks = 64;

[[nodiscard]] std::span<const LayerDescription> layer_descriptions();
[[nodiscard]] const LayerDescription& description_of(LayerKind kind);

// The linear and vocabulary layers of a model as an engine builds them.
enum class BaseLayer : std::uint8_t {
  kReplicated,
  kColumn,
  kMergedColumn,
  kQkv,
  kRow,
  kLogits,
  kVocabEmbedding,
};
template <>
struct EnumNames<BaseLayer> {
  static constexpr std::array<std::string_view, 7> kNames{
      "replicated", "column", "merged_column", "qkv", "row", "logits", "vocab_embedding"};
};

// One row of the replacement rules of vLLM (`can_replace_layer` of vllm/lora/layers): which kind
// takes the place of a base layer with so many output blocks, of which adapters know so many
// modules (q_proj, k_proj and v_proj of one qkv: 3; one that is named itself: 1; none named: 0).
struct ReplacementRule {
  BaseLayer base = BaseLayer::kReplicated;
  std::int64_t least_blocks = 1, most_blocks = 1, least_modules = 1, most_modules = 1;
  LayerKind kind = LayerKind::kReplicated;
  // Where all LoRA weights are divided among shards: in the kind's own form for that, as always
  // (there is nothing to divide), or not at all.
  enum class WhenFull : std::uint8_t { kOwnForm, kAsAlways, kNot } full = WhenFull::kOwnForm;
};
[[nodiscard]] std::span<const ReplacementRule> replacement_rules();

// The kind by the first rule that fits; none where none does.
[[nodiscard]] std::optional<LayerKind> kind_that_replaces(BaseLayer base, std::int64_t blocks,
                                                          std::int64_t modules,
                                                          bool fully_sharded = false);

}  // namespace lora_bench
