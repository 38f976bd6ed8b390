#pragma once

#include <cstdint>
#include <vector>

namespace lora_bench::kernels {

// What decides whether a base product goes on over adapters, and which. Host only, pure.
struct ContinuedShape {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;  // of y
  std::int64_t slots = 0;
  std::int64_t slices = 0;
  std::int64_t max_rank = 0;
  std::int64_t depth = 0;  // of x and W
};
// Of the batch: a slot in use and its rows.
struct ContinuedGroup {
  std::int32_t slot = 0;
  std::int64_t rows = 0;
};

constexpr int kContinuedBlocks = 32;
constexpr int kContinuedParts = 2;       // an h of fp32 is so many numbers of bf16
constexpr int kContinuedTileRows = 128;  // of one adapter, of a cluster of blocks
constexpr int kContinuedFewRows = 16;    // of one adapter that are left by tiles, of one warp
constexpr int kContinuedSplits = 8;      // of K: blocks of a cluster

// Shared memory of a block.
struct ContinuedShared {
  std::int64_t columns_each = 0;  // of K
  std::int64_t pitch = 0;         // bytes between rows of A: a quarter of a warp reads other banks
  std::int64_t lanes = 0;         // of A, in whole tiles that there is code for
  std::int64_t bytes = 0;
};

// Columns that one adapter takes behind x and W, a multiple of 8.
[[nodiscard]] std::int64_t continued_lanes(const ContinuedShape& shape);
// How many adapters find room there.
[[nodiscard]] std::int64_t continued_blocks(const ContinuedShape& shape);
[[nodiscard]] ContinuedShared continued_shared(std::int64_t depth, std::int64_t lanes_of_a);
// Tiles of rows of so many adapters; and how many have few rows beside them.
[[nodiscard]] std::int64_t continued_tiles(const std::vector<ContinuedGroup>& groups);
[[nodiscard]] std::int64_t continued_few(const std::vector<ContinuedGroup>& groups);
// What a row of x and W has behind its columns: rows begin on 128 bytes where they did before.
[[nodiscard]] std::int64_t continued_room(const ContinuedShape& shape);
[[nodiscard]] bool continued_takes(const ContinuedShape& shape);
// The slots that the product goes on over: where all have room, all of them; else those whose rows
// are worth it. All others' rows are left to an expand.
[[nodiscard]] std::vector<std::int32_t> continued_slots(const ContinuedShape& shape,
                                                        std::vector<ContinuedGroup> groups);
// Than a pass over y for what adapters add, as measured on an H200.
[[nodiscard]] bool continued_is_quicker(const ContinuedShape& shape,
                                        const std::vector<ContinuedGroup>& groups);

}  // namespace lora_bench::kernels
