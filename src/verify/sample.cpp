#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "core/random.h"
#include "verify/verify.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kSampleStream = 0x73616d706c65ULL;

// A run of token_order: a group, or the rows without adapter.
struct Run {
  std::int64_t first = 0, past = 0;
};

std::vector<Run> runs_of(const Plan& plan) {
  std::vector<Run> runs;
  for (std::size_t group = 0; group < plan.active_ids.size(); ++group) {
    runs.push_back({plan.group_starts[group], plan.group_starts[group + 1]});
  }
  if (plan.rows_with_adapter() < plan.tokens()) {
    runs.push_back({plan.rows_with_adapter(), plan.tokens()});
  }
  return runs;
}

// Both sides of the tile boundaries that kernels are likely to have, nearest to the ends.
std::vector<std::int64_t> boundary_positions(const Run& run) {
  std::vector<std::int64_t> positions;
  // 2^15 and 2^16: where a position outgrows its type.
  for (const std::int64_t tile :
       std::array<std::int64_t, 7>{1 << 15, 1 << 16, 16, 32, 64, 128, 256}) {
    const std::int64_t last_boundary = run.first + (run.past - run.first - 1) / tile * tile;
    for (const std::int64_t boundary : {run.first + tile, last_boundary}) {
      for (const std::int64_t position : {boundary - 1, boundary}) {
        if (position >= run.first && position < run.past) {
          positions.push_back(position);
        }
      }
    }
  }
  return positions;
}

// Of the rows at which an index outgrows 15 or 16 bits.
std::vector<std::int64_t> positions_of_wide_rows(const Plan& plan) {
  constexpr std::int64_t kHalf = 1 << 15;
  std::vector<std::int64_t> positions;
  for (std::int64_t position = 0; plan.tokens() > kHalf && position < plan.tokens(); ++position) {
    const std::int64_t row = plan.token_order[static_cast<std::size_t>(position)];
    if (row == kHalf - 1 || row == kHalf || row == 2 * kHalf - 1 || row == 2 * kHalf) {
      positions.push_back(position);
    }
  }
  return positions;
}

}  // namespace

std::vector<std::int64_t> sample_rows(const Problem& problem, std::int64_t max_rows,
                                      std::uint64_t seed) {
  if (problem.tokens <= max_rows) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(problem.tokens));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  const std::vector<Run> runs = runs_of(problem.plan);
  std::set<std::int64_t> positions;  // in token_order
  for (const Run& run : runs) {
    positions.insert(run.first);
    positions.insert(run.past - 1);
  }
  for (const std::int64_t position : positions_of_wide_rows(problem.plan)) {
    positions.insert(position);
  }
  const auto missing = [&] { return max_rows - static_cast<std::int64_t>(positions.size()); };
  // Boundaries may take half of what is left, dealt to the runs in turn.
  const std::int64_t keep_free = missing() / 2;
  for (std::size_t turn = 0; turn < 28; ++turn) {
    for (const Run& run : runs) {
      const std::vector<std::int64_t> boundaries = boundary_positions(run);
      if (turn < boundaries.size() && missing() > keep_free) {
        positions.insert(boundaries[turn]);
      }
    }
  }
  const std::int64_t strata = std::max<std::int64_t>(0, missing());
  for (std::int64_t stratum = 0; stratum < strata; ++stratum) {
    const std::int64_t first = problem.tokens * stratum / strata;
    const std::int64_t past = problem.tokens * (stratum + 1) / strata;
    positions.insert(first + static_cast<std::int64_t>(random_below(
                                 seed, kSampleStream, static_cast<std::uint64_t>(stratum),
                                 static_cast<std::uint64_t>(past - first))));
  }
  std::vector<std::int64_t> rows;
  for (const std::int64_t position : positions) {
    rows.push_back(problem.plan.token_order[static_cast<std::size_t>(position)]);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace lora_bench
