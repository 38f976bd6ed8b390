#include "kernels/paired/paired_tuning.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

// Tiles that any split of the tokens into `active` groups fits into: each group has at most one
// that is not full.
std::int64_t row_tiles(const PairedShape& shape, std::int64_t rows_per_tile) {
  return std::min(shape.tokens, shape.tokens / rows_per_tile + shape.active);
}

// The shapes of shrink that are compiled, and how many blocks of each a multiprocessor holds.
struct ShrinkShape {
  int row_fragments;
  int lane_fragments;
  int stages;
  std::int64_t resident;
};
constexpr ShrinkShape kShrinkShapes[] = {{1, 1, 4, 4}, {1, 1, 9, 2}, {1, 2, 4, 3},
                                         {1, 2, 9, 1}, {1, 4, 4, 2}, {4, 2, 4, 1},
                                         {4, 4, 4, 1}, {4, 6, 4, 1}, {4, 8, 3, 1}};

std::int64_t shared_bytes(const ShrinkShape& of) {
  return std::int64_t{of.stages} * (2 * of.row_fragments + of.lane_fragments) *
         kPairedShrinkThreads * 16;
}

PairedShrinkTuning tuning_of(const PairedShape& shape, const ShrinkShape& of, std::int64_t parts) {
  PairedShrinkTuning tuning;
  tuning.row_fragments = of.row_fragments;
  tuning.lane_fragments = of.lane_fragments;
  tuning.stages = of.stages;
  tuning.lane_tiles = divide_up(shape.slices * shape.max_rank, 8 * of.lane_fragments);
  tuning.parts = parts;
  tuning.blocks = row_tiles(shape, 16 * of.row_fragments) * tuning.lane_tiles * parts;
  return tuning;
}

// Microseconds, roughly: what a multiprocessor takes in, wave by wave, against what the L2 gives
// out; and what h costs in parts. Only the order of the candidates matters.
double estimate_us(const PairedShape& shape, const ShrinkShape& of,
                   const PairedShrinkTuning& tuning) {
  constexpr double kMultiprocessorBytes = 100e3;  // a microsecond
  constexpr double kCacheBytes = 5e6;
  constexpr double kLatency = 1.0;  // us, from asking to having
  constexpr double kStart = 1.5;    // us, until a block knows its rows
  const auto tiles = static_cast<double>(row_tiles(shape, 16 * of.row_fragments));
  const double rows =
      std::min(16.0 * of.row_fragments, static_cast<double>(shape.tokens) / tiles + 1);
  const double lanes = 8.0 * of.lane_fragments;
  const auto groups = static_cast<double>(paired_groups(shape.in_features));
  const double groups_of_block = tuning.parts == 1 ? groups : 1;
  const double bytes =
      (rows + lanes) * 2 * static_cast<double>(shape.in_features) / groups * groups_of_block;
  const double under_way = (of.stages - 1) * (rows + lanes) * 512;
  const auto blocks = static_cast<double>(tuning.blocks);
  const auto machine = static_cast<double>(shape.multiprocessors);
  const double together = std::min(static_cast<double>(of.resident), std::ceil(blocks / machine));
  const double waves = std::ceil(blocks / (machine * static_cast<double>(of.resident)));
  const double rate = std::min(together * under_way / kLatency, kMultiprocessorBytes);
  const double sums = groups_of_block * (0.3 + 0.04 * of.row_fragments * of.lane_fragments);
  const double wave = kStart + sums + bytes * together / rate;
  const double hidden = static_cast<double>(tuning.parts * shape.tokens) *
                        static_cast<double>(shape.slices * shape.max_rank) * 8 / kCacheBytes;
  return std::max(waves * wave, blocks * bytes / kCacheBytes) + hidden;
}

// Rows of 64 when an adapter has many: B is then read once for four times as many rows.
bool many_rows(const PairedShape& shape) {
  constexpr std::int64_t kRowsOfAnAdapter = 24;
  return shape.tokens >= kRowsOfAnAdapter * shape.active;
}

}  // namespace

std::int64_t paired_groups(std::int64_t in_features) {
  return std::clamp<std::int64_t>(in_features / 2048, 1, kMostPairedGroups);
}

std::int64_t paired_group_depth(std::int64_t in_features) {
  return divide_up(divide_up(in_features, paired_groups(in_features)), kPairedStride) *
         kPairedStride;
}

PairedShrinkTuning paired_shrink_tuning(const PairedShape& shape) {
  const std::int64_t groups = paired_groups(shape.in_features);
  if (!shape.vectors) {
    return tuning_of(shape, {1, 2, 4, 1}, groups);
  }
  PairedShrinkTuning best;
  double least = std::numeric_limits<double>::infinity();
  for (const ShrinkShape& candidate : kShrinkShapes) {
    if (shared_bytes(candidate) > shape.shared_bytes) {
      continue;
    }
    for (const std::int64_t parts : {groups, std::int64_t{1}}) {
      const PairedShrinkTuning tuning = tuning_of(shape, candidate, parts);
      const double time = estimate_us(shape, candidate, tuning);
      if (time < least) {
        least = time;
        best = tuning;
      }
    }
  }
  return best;
}

PairedExpandTuning paired_expand_tuning(const PairedShape& shape, const std::int64_t* widths,
                                        std::int64_t hidden_bytes) {
  constexpr std::int64_t kMostTurns = 16;
  constexpr std::int64_t kMostHeldBytes = 64 << 10;
  PairedExpandTuning tuning;
  const bool many = many_rows(shape);
  tuning.row_fragments = many ? 2 : 1;
  const std::int64_t columns = many ? 128 : 256;
  const std::int64_t tiles_of_rows = row_tiles(shape, many ? 64 : 16);
  const auto count = [&](std::int64_t columns_per_tile) {
    std::int64_t tiles = 0;
    for (std::int64_t slice = 0; slice < shape.slices; ++slice) {
      tiles += divide_up(widths[slice], columns_per_tile);
    }
    return tiles;
  };
  // One wave of blocks that stay, rather than many that each begin anew.
  const std::int64_t resident = shape.multiprocessors * (many ? 2 : 4);
  const std::int64_t turns =
      std::clamp<std::int64_t>(tiles_of_rows * count(columns) / resident, 1, kMostTurns);
  tuning.columns_per_tile = turns * columns;
  tuning.column_tiles = count(tuning.columns_per_tile);
  tuning.blocks = tiles_of_rows * tuning.column_tiles;
  const std::int64_t held = divide_up(shape.max_rank, 16) * 2 * tuning.row_fragments * 4 *
                            hidden_bytes * kPairedExpandThreads;
  const std::int64_t stages = kPairedExpandStages * kPairedExpandThreads *
                              (kPairedBytesOfB + tuning.row_fragments * kPairedBytesOfY);
  tuning.holds_h = held <= kMostHeldBytes && stages + held <= shape.shared_bytes;
  tuning.shared_bytes = static_cast<int>(stages + (tuning.holds_h ? held : 0));
  return tuning;
}

std::int64_t paired_shrink_depth(std::int64_t in_features) {
  constexpr std::int64_t kWarps = kPairedShrinkThreads / 32;
  constexpr std::int64_t kOwn = kPairedStride / kWarps;
  return paired_group_depth(in_features) / kPairedStride * kOwn + kWarps +
         paired_groups(in_features);
}

std::int64_t paired_expand_depth(std::int64_t max_rank, bool fp32_h) {
  constexpr std::int64_t kBiasAndY = 2;
  return (fp32_h ? 3 : 1) * max_rank + kBiasAndY;
}

}  // namespace lora_bench::kernels
