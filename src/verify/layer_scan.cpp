#include "verify/layer_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/random.h"
#include "verify/verify.h"

namespace lora_bench {
namespace {

constexpr std::size_t kMostInfiniteRows = 16;
constexpr std::uint64_t kLayerRowStream = 0x6c61796572ULL;
constexpr std::int64_t kMostLayerRows = 16, kLeastLayerRows = 2;
// Multiply-adds of the base's oracle, about a second.
constexpr std::int64_t kProductsOfRows = std::int64_t{1} << 31;

// The first of `count` elements that is NaN.
std::int64_t first_nan(const Matrix& matrix, const std::byte* row) {
  const std::int64_t bytes = size_bytes(matrix.dtype);
  std::int64_t column = 0;
  while (!holds_nan(matrix.dtype, row + column * bytes, 1)) {
    ++column;
  }
  return column;
}

}  // namespace

ShardScan scan_shards(const LayerProblem& problem, const ShardOutputs& got) {
  ShardScan scan;
  for (std::size_t rank = 0; rank < got.size(); ++rank) {
    const Matrix& matrix = got[rank];
    const std::vector<std::int64_t> columns =
        columns_of_output(problem.layer, static_cast<std::int64_t>(rank));
    const auto width = static_cast<std::int64_t>(columns.size());
    const std::int64_t row_bytes = matrix.columns * size_bytes(matrix.dtype);
    for (std::int64_t token = 0; token < problem.lora.tokens; ++token) {
      const std::byte* row = matrix.data.data() + token * row_bytes;
      if (!holds_infinity_or_nan(matrix.dtype, row, width)) {
        continue;
      }
      if (!holds_nan(matrix.dtype, row, width)) {
        scan.infinite_rows.push_back(token);
        continue;
      }
      if (!scan.nan) {
        const auto column = static_cast<std::size_t>(first_nan(matrix, row));
        scan.nan.emplace();
        scan.nan->level = Level::kMemory;
        scan.nan->what = fmt::format(
            "NaN in the result, perhaps never written: first in shard {}, token {} (adapter {}), "
            "column {} of the whole",
            rank, token, problem.lora.plan.adapter_of_token[static_cast<std::size_t>(token)],
            columns[column]);
      }
    }
  }
  std::sort(scan.infinite_rows.begin(), scan.infinite_rows.end());
  scan.infinite_rows.erase(std::unique(scan.infinite_rows.begin(), scan.infinite_rows.end()),
                           scan.infinite_rows.end());
  scan.infinite_rows.resize(std::min(scan.infinite_rows.size(), kMostInfiniteRows));
  return scan;
}

std::vector<std::int64_t> any_layer_rows(const LayerProblem& problem, std::uint64_t secret) {
  const std::int64_t all = problem.lora.tokens;
  const std::int64_t of_row =
      std::max<std::int64_t>(1, problem.layer.in_features * problem.columns());
  const std::int64_t wanted =
      std::min(all, std::clamp(kProductsOfRows / of_row, kLeastLayerRows, kMostLayerRows));
  std::vector<std::int64_t> rows(static_cast<std::size_t>(all));
  std::iota(rows.begin(), rows.end(), 0);
  for (std::int64_t index = 0; index < wanted; ++index) {
    const auto other = random_below(secret, kLayerRowStream, static_cast<std::uint64_t>(index),
                                    static_cast<std::uint64_t>(all - index));
    std::swap(rows[static_cast<std::size_t>(index)],
              rows[static_cast<std::size_t>(index) + static_cast<std::size_t>(other)]);
  }
  rows.resize(static_cast<std::size_t>(wanted));
  return rows;
}

}  // namespace lora_bench
