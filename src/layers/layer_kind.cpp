#include "layers/layer_kind.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace lora_bench {
namespace {

constexpr LoraSharding kWhole{};
constexpr LoraSharding kOwnColumns{.a = Cut::kNone, .b = Cut::kOutputs, .h = Exchange::kNone};
constexpr LoraSharding kOwnInputs{.a = Cut::kInputs, .b = Cut::kNone, .h = Exchange::kNone};
// S-LoRA: nothing is computed twice. Each shard shrinks its share of the rank and needs all of h.
constexpr LoraSharding kOwnLanes{.a = Cut::kRank, .b = Cut::kOutputs, .h = Exchange::kGather};
// ... or a term of all lanes, and adds its own columns of the delta to its term of y.
constexpr LoraSharding kOwnTerms{.a = Cut::kInputs, .b = Cut::kOutputs, .h = Exchange::kReduce};

constexpr std::array<LayerDescription, 9> kDescriptions{{
    {.kind = LayerKind::kReplicated, .plain = kWhole, .full = {}},
    {.kind = LayerKind::kColumn,
     .base = Cut::kOutputs,
     .may_gather = true,
     .most_blocks = 2,
     .plain = kOwnColumns,
     .full = kOwnLanes},
    {.kind = LayerKind::kMergedColumn,
     .base = Cut::kOutputs,
     .may_gather = true,
     .least_blocks = 2,
     .most_blocks = kMostBlocks,
     .joint = false,
     .plain = kOwnColumns,
     .full = kOwnLanes},
    {.kind = LayerKind::kMergedColumnVariable,
     .base = Cut::kOutputs,
     .may_gather = true,
     .most_blocks = kMostBlocks,
     .joint = false,
     .plain = kOwnColumns,
     .full = {}},
    {.kind = LayerKind::kQkv,
     .base = Cut::kOutputs,
     .may_gather = true,
     .least_blocks = 3,
     .most_blocks = 3,
     .heads = true,
     .plain = kOwnColumns,
     .full = kOwnLanes},
    {.kind = LayerKind::kMergedQkv,
     .base = Cut::kOutputs,
     .may_gather = true,
     .least_blocks = 3,
     .most_blocks = 3,
     .joint = false,
     .heads = true,
     .plain = kOwnColumns,
     .full = kOwnLanes},
    {.kind = LayerKind::kRow,
     .base = Cut::kInputs,
     .y = Exchange::kReduce,
     .plain = kOwnInputs,
     .full = kOwnTerms},
    {.kind = LayerKind::kLogits,
     .base = Cut::kOutputs,
     .y = Exchange::kGather,
     .lora_after_exchange = true,
     .most_blocks = 2,
     .vocabulary = true,
     .plain = kWhole,
     .full = {}},
    // Of ids: its inputs are the vocabulary, its outputs the columns of a row of the table.
    {.kind = LayerKind::kVocabEmbedding,
     .base = Cut::kInputs,
     .y = Exchange::kReduce,
     .lora_after_exchange = true,
     .vocabulary = true,
     .looks_up = true,
     .plain = kWhole,
     .full = {}},
}};

using WhenFull = ReplacementRule::WhenFull;

// One adapter of a merged base is that of a column layer whose B has two halves, or from three
// outputs on of the variable kind, which takes three modules and more as well.
constexpr std::array<ReplacementRule, 11> kRules{{
    {BaseLayer::kReplicated, 1, 1, 1, 1, LayerKind::kReplicated, WhenFull::kAsAlways},
    {BaseLayer::kColumn, 1, 1, 0, kMostBlocks, LayerKind::kColumn, WhenFull::kOwnForm},
    {BaseLayer::kMergedColumn, 1, 2, 1, 1, LayerKind::kColumn, WhenFull::kOwnForm},
    {BaseLayer::kMergedColumn, 1, kMostBlocks, 2, 2, LayerKind::kMergedColumn, WhenFull::kOwnForm},
    {BaseLayer::kMergedColumn, 1, kMostBlocks, 3, kMostBlocks, LayerKind::kMergedColumnVariable,
     WhenFull::kNot},
    {BaseLayer::kMergedColumn, 3, kMostBlocks, 0, 1, LayerKind::kMergedColumnVariable,
     WhenFull::kNot},
    {BaseLayer::kQkv, 3, 3, 1, 1, LayerKind::kQkv, WhenFull::kOwnForm},
    {BaseLayer::kQkv, 3, 3, 3, 3, LayerKind::kMergedQkv, WhenFull::kOwnForm},
    {BaseLayer::kRow, 1, 1, 0, kMostBlocks, LayerKind::kRow, WhenFull::kOwnForm},
    {BaseLayer::kLogits, 1, 2, 1, 1, LayerKind::kLogits, WhenFull::kAsAlways},
    {BaseLayer::kVocabEmbedding, 1, 1, 1, 1, LayerKind::kVocabEmbedding, WhenFull::kAsAlways},
}};

}  // namespace

std::span<const LayerDescription> layer_descriptions() { return kDescriptions; }

const LayerDescription& description_of(LayerKind kind) {
  const auto* const found =
      std::find_if(kDescriptions.begin(), kDescriptions.end(),
                   [&](const LayerDescription& row) { return row.kind == kind; });
  if (found == kDescriptions.end()) {
    throw std::logic_error("a layer kind without description");
  }
  return *found;
}

std::span<const ReplacementRule> replacement_rules() { return kRules; }

std::optional<LayerKind> kind_that_replaces(BaseLayer base, std::int64_t blocks,
                                            std::int64_t modules, bool fully_sharded) {
  const auto* const found =
      std::find_if(kRules.begin(), kRules.end(), [&](const ReplacementRule& rule) {
        return rule.base == base && rule.least_blocks <= blocks && blocks <= rule.most_blocks &&
               rule.least_modules <= modules && modules <= rule.most_modules &&
               !(fully_sharded && rule.full == WhenFull::kNot);
      });
  return found == kRules.end() ? std::nullopt : std::optional(found->kind);
}

}  // namespace lora_bench
