#include "kernels/chunked/chunked_tuning.h"

#include "kernels/divide_up.h"
#include "kernels/tile/tile_tuning.h"

namespace lora_bench::kernels {
namespace {

// By the size of the batch, as the published rule does: small segments make enough blocks of a
// small batch, large ones read weights less often.
constexpr std::int64_t kLargeBatch = 1024;

ChunkedTuning segments_of(const ChunkedShape& shape) {
  ChunkedTuning tuning;
  if (shape.chunk > 0) {
    tuning.chunk = shape.vectors && shape.chunk > 16 ? 64 : 16;
    tuning.tiles_of_segment = static_cast<int>(divide_up(shape.chunk, std::int64_t{tuning.chunk}));
    tuning.segments = shape.active * tuning.tiles_of_segment;
  } else if (shape.active > 0) {
    tuning.chunk = shape.vectors && shape.rows >= kLargeBatch ? 64 : 16;
    tuning.segments = first_segment(shape.active, shape.rows, tuning.chunk);
  }
  return tuning;
}

}  // namespace

ChunkedTuning chunked_shrink_tuning(const ChunkedShape& shape) {
  ChunkedTuning tuning = segments_of(shape);
  const std::int64_t lanes = shape.slices * shape.max_rank;
  tuning.columns_per_tile = tuning.chunk == 64 && lanes > 16 ? 64 : 16;
  tuning.depth = shape.vectors && tuning.chunk == 16 ? 512 : 128;
  tuning.column_tiles = divide_up(lanes, tuning.columns_per_tile);
  return tuning;
}

ChunkedTuning chunked_expand_tuning(const ChunkedShape& shape) {
  ChunkedTuning tuning = segments_of(shape);
  const ExpandTile tile = expand_tile_for(tuning.chunk, shape.max_rank, shape.vectors);
  tuning.columns_per_tile = tile.columns;
  tuning.depth = tile.depth;
  for (const std::int64_t width : shape.widths) {
    tuning.column_tiles += divide_up(width, tuning.columns_per_tile);
  }
  return tuning;
}

}  // namespace lora_bench::kernels
