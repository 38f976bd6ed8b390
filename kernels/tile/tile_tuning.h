#pragma once

#include <cstdint>

namespace lora_bench::kernels {

// The tile of an expand kernel, chosen by rank and by how many rows a block takes.
struct ExpandTile {
  int depth = 64;     // numbers of the rank in a stage
  int columns = 128;  // of a block
};
[[nodiscard]] ExpandTile expand_tile_for(int rows_per_tile, std::int64_t max_rank, bool vectors);

// Roundings on the longest path of one sum on tensor cores: each step adds 16 products and what was
// there, at little more than one rounding; warps and parts of K follow one by one.
[[nodiscard]] std::int64_t tile_shrink_depth(std::int64_t in_features, std::int64_t split);
[[nodiscard]] std::int64_t tile_expand_depth(std::int64_t max_rank, bool wide_intermediate);

}  // namespace lora_bench::kernels
