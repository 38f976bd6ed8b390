#include "verify/layer_logits.h"

#include <algorithm>
#include <numeric>

namespace lora_bench {

std::vector<double> gathered_logits(const ShardedLayer& layer, const ShardRows& terms,
                                    std::size_t rows, LayerFault fault) {
  const std::size_t columns = order_of_gathered(layer).size();
  const std::size_t width = columns / terms.size();
  std::vector<double> whole(rows * columns);
  for (std::size_t rank = 0; rank < terms.size(); ++rank) {
    const std::size_t own = terms[rank].size() / rows;
    const bool backwards = fault == LayerFault::kColumnsGatheredBackwards;
    const std::size_t place = backwards ? terms.size() - 1 - rank : rank;
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t column = 0; column < std::min(own, width); ++column) {
        whole[row * columns + place * width + column] = terms[rank][row * own + column];
      }
    }
  }
  return whole;
}

std::vector<double> logits_in_order(const ShardedLayer& layer, const std::vector<double>& gathered,
                                    LayerFault fault) {
  const std::vector<std::int64_t> order = order_of_gathered(layer);
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), std::int64_t{0});
  const std::int64_t padding = static_cast<std::int64_t>(order.size()) - columns;
  std::vector<double> logits(gathered.size() / order.size() * static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    const std::size_t row = i / order.size();
    const std::size_t at = i % order.size();
    std::int64_t place = order[at];
    if (fault == LayerFault::kLogitsNotReordered) {
      place = static_cast<std::int64_t>(at);
    } else if (fault == LayerFault::kPaddingKept && place >= layer.widths[0]) {
      place = place < columns ? place + padding : place - columns + layer.widths[0];
    }
    if (place < columns) {
      logits[row * static_cast<std::size_t>(columns) + static_cast<std::size_t>(place)] =
          gathered[i];
    }
  }
  return logits;
}

}  // namespace lora_bench
