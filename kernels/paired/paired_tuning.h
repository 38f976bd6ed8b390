#pragma once

#include <cstdint>

namespace lora_bench::kernels {

// What the choices depend on. None of them changes a bit of the result: the order of every sum
// follows from in_features and the rank alone.
struct PairedShape {
  std::int64_t tokens = 0;
  std::int64_t active = 0;  // adapters that have rows
  std::int64_t slices = 0;
  std::int64_t max_rank = 0;
  std::int64_t in_features = 0;
  std::int64_t multiprocessors = 0;
  std::int64_t shared_bytes = 227 << 10;  // that a block may have
  bool vectors = true;                    // x and A can be read 16 bytes at a time
};

// One-dimensional grids; 0 blocks: nothing to do, no launch.
struct PairedShrinkTuning {
  std::int64_t blocks = 0;
  int row_fragments = 1;   // 1 or 4 times 16 rows
  int lane_fragments = 2;  // times 8 lanes, counted over all slices at max_rank
  int stages = 4;          // steps of 32 elements of K in shared memory
  std::int64_t lane_tiles = 0;
  std::int64_t parts = 1;  // in which h leaves the kernel: 1 or as many as K has groups

  friend bool operator==(const PairedShrinkTuning&, const PairedShrinkTuning&) = default;
};

struct PairedExpandTuning {
  std::int64_t blocks = 0;
  int row_fragments = 1;  // 1: 16 rows times 256 columns at a time; 2: 64 rows times 128 columns
  std::int64_t columns_per_tile = 0;  // a multiple of those
  std::int64_t column_tiles = 0;      // of all slices
  bool holds_h = true;                // in shared memory, for all columns of a block
  int shared_bytes = 0;

  friend bool operator==(const PairedExpandTuning&, const PairedExpandTuning&) = default;
};

constexpr int kPairedShrinkThreads = 256;
constexpr int kPairedExpandThreads = 128;
// Of K: a warp takes 64 elements in every 512, so that a block reads whole runs of memory.
constexpr std::int64_t kPairedStride = 512;

constexpr int kPairedExpandStages = 3;
constexpr std::int64_t kMostPairedGroups = 4;

// Of a thread in a stage of expand: B of a step and 64 columns; y of them, for 16 rows.
constexpr int kPairedBytesOfB = 64;
constexpr int kPairedBytesOfY = 64;

// K is cut into groups of a multiple of 512; each is the work of eight warps.
[[nodiscard]] std::int64_t paired_groups(std::int64_t in_features);
[[nodiscard]] std::int64_t paired_group_depth(std::int64_t in_features);

[[nodiscard]] PairedShrinkTuning paired_shrink_tuning(const PairedShape& shape);
// `widths` has shape.slices entries; h is multiplied as numbers of `hidden_bytes` (2 or 4).
[[nodiscard]] PairedExpandTuning paired_expand_tuning(const PairedShape& shape,
                                                      const std::int64_t* widths,
                                                      std::int64_t hidden_bytes);

// Additions on the longest path of one sum; on tensor cores every product counts as one, as
// hardware may cut each term to the largest.
[[nodiscard]] std::int64_t paired_shrink_depth(std::int64_t in_features);
[[nodiscard]] std::int64_t paired_expand_depth(std::int64_t max_rank, bool fp32_h);

}  // namespace lora_bench::kernels
