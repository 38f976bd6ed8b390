#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace lora_bench::kernels {

// Rows: one row a block (BGMV), for decode. Segments: the rows of an adapter in tiles (SGMV).
enum class BgmvForm : std::uint8_t { kRows, kSegments };

// What the choices depend on.
struct BgmvShape {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;    // that have an adapter
  std::int64_t active = 0;  // adapters that have rows
  std::int64_t slices = 0;
  std::int64_t max_rank = 0;
};

// One-dimensional grids; 0 blocks: nothing to do, no launch.
struct BgmvShrinkTuning {
  BgmvForm form = BgmvForm::kRows;
  std::int64_t blocks = 0;
  int lanes_per_block = 1;      // rows: 1 or 4
  int row_fragments = 1;        // segments: 1 or 2 times 16 rows
  int lane_fragments = 2;       // segments: 2 or 8 times 8 lanes of all slices together
  std::int64_t lane_tiles = 0;  // segments

  friend bool operator==(const BgmvShrinkTuning&, const BgmvShrinkTuning&) = default;
};

struct BgmvExpandTuning {
  BgmvForm form = BgmvForm::kRows;
  std::int64_t blocks = 0;
  std::int64_t columns_per_tile = 0;  // of one slice
  std::int64_t column_tiles = 0;      // of all slices

  friend bool operator==(const BgmvExpandTuning&, const BgmvExpandTuning&) = default;
};

constexpr int kBgmvThreads = 128;        // of a block of the row form
constexpr int kBgmvVector = 8;           // elements of 16 bytes
constexpr int kSgmvShrinkThreads = 256;  // its warps split K
constexpr int kSgmvExpandThreads = 128;
constexpr int kSgmvExpandRows = 64;
constexpr int kSgmvExpandColumns = 128;

// By rows an adapter: below this, tiles of rows would be mostly empty.
constexpr std::int64_t kRowsOfASegment = 16;
[[nodiscard]] BgmvForm bgmv_form(std::int64_t rows, std::int64_t active);

[[nodiscard]] BgmvShrinkTuning bgmv_shrink_tuning(const BgmvShape& shape);
// `widths` has shape.slices entries.
[[nodiscard]] BgmvExpandTuning bgmv_expand_tuning(const BgmvShape& shape,
                                                  const std::int64_t* widths);

// Additions on the longest path of one sum, as the kernels do them; on tensor cores every product
// counts as one, as hardware may cut each term to the largest.
[[nodiscard]] std::int64_t bgmv_shrink_depth(BgmvForm form, std::int64_t in_features);
[[nodiscard]] std::int64_t bgmv_expand_depth(BgmvForm form, std::int64_t max_rank, bool fp32_h);

}  // namespace lora_bench::kernels
