#include "scenario/case.h"

#include <numeric>

namespace lora_bench {

std::int64_t columns_of(const LayerShape& layer) {
  return std::accumulate(layer.widths.begin(), layer.widths.end(), layer.offset_start);
}

bool has_base(Op op) { return op == Op::kLayer; }

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
