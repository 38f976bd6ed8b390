#include "ops/vocabulary.h"

#include <cmath>
#include <cstring>

#include "core/dtype.h"
#include "core/error.h"
#include "device/facts.h"
#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/vocabulary/vocabulary.h"
#include "ops/kernel_params.h"
#endif

namespace lora_bench {
namespace {

const std::byte* element(const void* array, std::int64_t index, std::int64_t bytes) {
  return static_cast<const std::byte*>(array) + index * bytes;
}
std::byte* element(void* array, std::int64_t index, std::int64_t bytes) {
  return static_cast<std::byte*>(array) + index * bytes;
}

void read_table_here(const TableRows& rows) {
  const std::int64_t bytes = rows.columns * size_bytes(rows.dtype);
  for (std::int64_t row = 0; row < rows.rows && bytes > 0; ++row) {
    const std::int64_t id = rows.ids[row];
    const bool added = id >= rows.vocabulary;
    const std::int64_t at = added ? id - rows.vocabulary - rows.first_added : id - rows.first;
    std::byte* const to = element(rows.to, row, bytes);
    if (at >= 0 && at < (added ? rows.count_added : rows.count)) {
      const std::int64_t before = added ? rows.adapter_of_token[row] * rows.count_added : 0;
      std::memcpy(to, element(added ? rows.added : rows.table, before + at, bytes),
                  static_cast<std::size_t>(bytes));
    } else {
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    }
  }
}

void read_lanes_here(const LanesById& lanes) {
  for (std::int64_t row = 0; row < lanes.rows; ++row) {
    const std::int32_t slot = lanes.adapter_of_token[row];
    for (std::int64_t lane = 0; slot >= 0 && lane < lanes.rank[slot]; ++lane) {
      const std::int64_t from = (slot * lanes.vocabulary + lanes.ids[row]) * lanes.lanes + lane;
      const float scale =
          lanes.a_scale == nullptr ? 1 : lanes.a_scale[lanes.scales.at(slot, lane, lanes.ids[row])];
      store(lanes.intermediate, lanes.h, row * lanes.lanes + lane,
            load(lanes.dtype, lanes.a, from) * scale);
    }
  }
}

void reorder_here(const ReorderedColumns& columns) {
  const std::int64_t bytes = size_bytes(columns.dtype);
  for (std::int64_t row = 0; row < columns.rows; ++row) {
    for (std::int64_t column = 0; column < columns.columns; ++column) {
      std::memcpy(element(columns.to, row * columns.columns + columns.order[column], bytes),
                  element(columns.from, row * columns.columns + column, bytes),
                  static_cast<std::size_t>(bytes));
    }
  }
}

void cap_here(const CappedLogits& logits) {
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    for (std::int64_t column = 0; column < logits.columns; ++column) {
      const std::int64_t at = row * logits.stride + column;
      float value = load(logits.dtype, logits.y, at);
      if (logits.cap > 0) {
        value = logits.cap * std::tanh(value / logits.cap);
      }
      store(logits.dtype, logits.y, at, value * logits.scale);
    }
  }
}

}  // namespace

#ifdef LORA_BENCH_HAVE_CUDA
namespace {

cudaStream_t cuda_stream(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

void launch_table(const TableRows& rows, Stream stream) {
  LORA_BENCH_CUDA_CHECK(kernels::launch_table_rows(
      kernel_number(rows.dtype),
      {rows.table, rows.ids, rows.to, rows.rows, rows.columns, rows.first, rows.count,
       rows.vocabulary, rows.added, rows.adapter_of_token, rows.first_added, rows.count_added},
      cuda_stream(stream)));
}

void launch_lanes(const LanesById& lanes, Stream stream) {
  LORA_BENCH_CUDA_CHECK(kernels::launch_lanes_by_id(
      weight_number(lanes.dtype), kernel_number(lanes.intermediate),
      {lanes.a, lanes.a_scale, lanes.scales.rows, lanes.scales.columns, lanes.scales.down,
       lanes.scales.across, lanes.ids, lanes.adapter_of_token, lanes.rank, lanes.h, lanes.rows,
       lanes.vocabulary, lanes.lanes},
      cuda_stream(stream)));
}

void launch_reorder(const ReorderedColumns& columns, Stream stream) {
  LORA_BENCH_CUDA_CHECK(kernels::launch_reorder_columns(
      kernel_number(columns.dtype),
      {columns.from, columns.order, columns.to, columns.rows, columns.columns},
      cuda_stream(stream)));
}

void launch_cap(const CappedLogits& logits, Stream stream) {
  LORA_BENCH_CUDA_CHECK(kernels::launch_cap(
      kernel_number(logits.dtype),
      {logits.y, logits.rows, logits.columns, logits.stride, logits.cap, logits.scale},
      cuda_stream(stream)));
}

}  // namespace
#else
namespace {

void launch_table(const TableRows&, Stream) { throw EnvironmentError(why_no_gpu()); }
void launch_lanes(const LanesById&, Stream) { throw EnvironmentError(why_no_gpu()); }
void launch_reorder(const ReorderedColumns&, Stream) { throw EnvironmentError(why_no_gpu()); }
void launch_cap(const CappedLogits&, Stream) { throw EnvironmentError(why_no_gpu()); }

}  // namespace
#endif

void read_table(Space space, const TableRows& rows, Stream stream) {
  space == Space::kHost ? read_table_here(rows) : launch_table(rows, stream);
}

void read_lanes(Space space, const LanesById& lanes, Stream stream) {
  space == Space::kHost ? read_lanes_here(lanes) : launch_lanes(lanes, stream);
}

void reorder_columns(Space space, const ReorderedColumns& columns, Stream stream) {
  space == Space::kHost ? reorder_here(columns) : launch_reorder(columns, stream);
}

void cap_logits(Space space, const CappedLogits& logits, Stream stream) {
  space == Space::kHost ? cap_here(logits) : launch_cap(logits, stream);
}

}  // namespace lora_bench
