#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "verify/layer_diagnose.h"
#include "verify/verify.h"

namespace lora_bench {

// What every row of a layer says without an oracle: all of it is written, so no NaN may be left.
struct ShardScan {
  std::optional<Failure> nan;
  std::vector<std::int64_t> infinite_rows;  // the first few, right only where the oracle says so
};
[[nodiscard]] ShardScan scan_shards(const LayerProblem& problem, const ShardOutputs& got);

// Rows beyond those that were sampled, and the oracle of any rows.
struct MoreRows {
  std::function<reference::LayerRows(const std::vector<std::int64_t>&)> oracle;
  std::vector<std::int64_t> rows;
};

// Different ones of all rows, as `secret` has it: of few whose oracle takes long.
[[nodiscard]] std::vector<std::int64_t> any_layer_rows(const LayerProblem& problem,
                                                       std::uint64_t secret);

}  // namespace lora_bench
