#include "scenario/case.h"

#include <numeric>

namespace lora_bench {

std::int64_t columns_of(const LayerShape& layer) {
  return std::accumulate(layer.widths.begin(), layer.widths.end(), layer.offset_start);
}

bool has_base(Op op) { return op == Op::kLayer; }

bool has_shrink(Op op) { return op != Op::kExpand && op != Op::kEmbedding; }

bool has_expand(Op op) { return op != Op::kShrink; }

}  // namespace lora_bench
