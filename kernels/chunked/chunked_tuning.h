#pragma once

#include <cstdint>
#include <span>

namespace lora_bench::kernels {

struct ChunkedShape {
  std::int64_t rows = 0;  // with an adapter
  std::int64_t active = 0;
  // Of a published form, whose groups are segments of at most so many rows: `active` is their
  // number. 0: groups are adapters.
  std::int64_t chunk = 0;
  std::int64_t slices = 0;
  std::int64_t max_rank = 0;
  std::span<const std::int64_t> widths;
  bool vectors = true;  // operands can be read 16 bytes at a time
};

// A grid of (segments, lane or column tiles of all slices together).
struct ChunkedTuning {
  int chunk = 16;             // rows of a tile at most: 16 or 64
  int tiles_of_segment = 0;   // of a segment that a published form lists; 0: a tile is a segment
  int columns_per_tile = 16;  // shrink: lanes, 16 or 64; expand: 128 to 512 columns
  int depth = 128;
  std::int64_t column_tiles = 0;
  std::int64_t segments = 0;  // tiles of rows

  friend bool operator==(const ChunkedTuning&, const ChunkedTuning&) = default;
};

[[nodiscard]] ChunkedTuning chunked_shrink_tuning(const ChunkedShape& shape);
[[nodiscard]] ChunkedTuning chunked_expand_tuning(const ChunkedShape& shape);

// Group g gets the segments from first_segment(g, its start) on, as many as its rows fill and at
// most one more: no table of segments is needed, and a bound of their number is known beforehand.
#ifdef __CUDACC__
__host__ __device__
#endif
    constexpr std::int64_t
    first_segment(std::int64_t group, std::int64_t group_start, std::int64_t chunk) {
  return group + group_start / chunk;
}

}  // namespace lora_bench::kernels
