#include "kernels/chunked/chunked_tuning.h"

namespace lora_bench::kernels {
namespace {

std::int64_t divide_up(std::int64_t value, std::int64_t by) {
  return value / by + (value % by == 0 ? 0 : 1);
}

// Few rows an adapter: small segments leave fewer rows empty; many: large ones read weights less
// often.
ChunkedTuning segments_of(const ChunkedShape& shape) {
  ChunkedTuning tuning;
  if (shape.active > 0) {
    tuning.chunk = shape.vectors && shape.rows > 16 * shape.active ? 64 : 16;
    tuning.segments = first_segment(shape.active, shape.rows, tuning.chunk);
  }
  return tuning;
}

}  // namespace

ChunkedTuning chunked_shrink_tuning(const ChunkedShape& shape) {
  ChunkedTuning tuning = segments_of(shape);
  const std::int64_t lanes = shape.slices * shape.max_rank;
  tuning.columns_per_tile = shape.vectors && lanes > 16 ? 64 : 16;
  tuning.column_tiles = divide_up(lanes, tuning.columns_per_tile);
  return tuning;
}

ChunkedTuning chunked_expand_tuning(const ChunkedShape& shape) {
  ChunkedTuning tuning = segments_of(shape);
  tuning.columns_per_tile = 128;
  tuning.depth = shape.vectors && shape.max_rank <= 16 ? 16 : 64;
  for (const std::int64_t width : shape.widths) {
    tuning.column_tiles += divide_up(width, tuning.columns_per_tile);
  }
  return tuning;
}

}  // namespace lora_bench::kernels
