#include <stdexcept>
#include <utility>

#include "scenario/case.h"

namespace lora_bench {

std::string_view name(Op op) {
  switch (op) {
    case Op::kShrink:
      return "shrink";
    case Op::kExpand:
      return "expand";
    case Op::kLinear:
      return "linear";
    case Op::kEmbedding:
      return "embedding";
    case Op::kLogits:
      return "logits";
    case Op::kLayer:
      return "layer";
  }
  throw std::logic_error("op outside the enumeration");
}

std::string_view name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kReplicated:
      return "replicated";
    case LayerKind::kColumn:
      return "column";
    case LayerKind::kMergedColumn:
      return "merged_column";
    case LayerKind::kMergedColumnVariable:
      return "merged_column_variable";
    case LayerKind::kQkv:
      return "qkv";
    case LayerKind::kMergedQkv:
      return "merged_qkv";
    case LayerKind::kRow:
      return "row";
    case LayerKind::kLogits:
      return "logits";
    case LayerKind::kVocabEmbedding:
      return "vocab_embedding";
  }
  throw std::logic_error("layer kind outside the enumeration");
}

std::string_view name(Overlap overlap) {
  switch (overlap) {
    case Overlap::kAuto:
      return "auto";
    case Overlap::kSerial:
      return "serial";
    case Overlap::kShrink:
      return "shrink";
    case Overlap::kDelta:
      return "delta";
    case Overlap::kEpilogue:
      return "epilogue";
    case Overlap::kFused:
      return "fused";
  }
  throw std::logic_error("overlap outside the enumeration");
}

std::string_view name(BaseAlgorithm algorithm) {
  switch (algorithm) {
    case BaseAlgorithm::kAuto:
      return "auto";
    case BaseAlgorithm::kFirst:
      return "first";
    case BaseAlgorithm::kQuickest:
      return "quickest";
  }
  throw std::logic_error("base algorithm outside the enumeration");
}

std::string_view name(ScaleAt scale_at) {
  return scale_at == ScaleAt::kShrink ? "shrink" : "expand";
}

std::string_view name(Order order) {
  switch (order) {
    case Order::kShuffled:
      return "shuffled";
    case Order::kSorted:
      return "sorted";
    case Order::kAsArrived:
      return "as-arrived";
  }
  throw std::logic_error("order outside the enumeration");
}

std::string_view name(Skew skew) {
  switch (skew) {
    case Skew::kIdentical:
      return "identical";
    case Skew::kDistinct:
      return "distinct";
    case Skew::kUniform:
      return "uniform";
    case Skew::kZipf:
      return "zipf";
    case Skew::kHot:
      return "hot";
    case Skew::kOneVsRest:
      return "one-vs-rest";
    case Skew::kBlocks:
      return "blocks";
    case Skew::kTrace:
      return "trace";
  }
  throw std::logic_error("skew outside the enumeration");
}

std::string_view name(CacheMode cache) {
  switch (cache) {
    case CacheMode::kWeightsCold:
      return "weights-cold";
    case CacheMode::kCold:
      return "cold";
    case CacheMode::kHot:
      return "hot";
  }
  throw std::logic_error("cache mode outside the enumeration");
}

std::string_view name(TunedFamily family) {
  switch (family) {
    case TunedFamily::kAuto:
      return "auto";
    case TunedFamily::kClustered:
      return "clustered";
    case TunedFamily::kResident:
      return "resident";
    case TunedFamily::kPanel:
      return "panel";
  }
  throw std::logic_error("kernel family outside the enumeration");
}

std::string_view name(Comm comm) { return comm == Comm::kNccl ? "nccl" : "none"; }

std::string_view name(LaunchMode mode) { return mode == LaunchMode::kGraph ? "graph" : "stream"; }

bool has_shrink(Op op) { return op != Op::kExpand && op != Op::kEmbedding; }

bool has_expand(Op op) { return op != Op::kShrink; }

Tuning tuning_of_op(Tuning tuning, Op op) {
  if (!has_shrink(op)) {
    tuning.shrink_tile.clear();
    tuning.split = tuning.parts = 0;
  }
  if (!has_expand(op)) {
    tuning.expand_tile.clear();
    tuning.chunks = 0;
  }
  return tuning;
}

}  // namespace lora_bench
