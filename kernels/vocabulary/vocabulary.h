#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params.h"
#include "kernels/weight_number.h"

namespace lora_bench::kernels {

// to[row] = table[ids[row] - first], zeros where the id lies outside of [first, first + count). An
// id from `vocabulary` on is one that the row's adapter added: what is after that is the row of
// `added`, less `first_added`, zeros where it lies outside of count_added.
struct TableParams {
  const void* table = nullptr;        // [count, columns]
  const std::int32_t* ids = nullptr;  // [rows]
  void* to = nullptr;                 // [rows, columns]
  std::int64_t rows = 0, columns = 0;
  std::int64_t first = 0, count = 0;
  std::int64_t vocabulary = 0;
  const void* added = nullptr;                     // [slots, count_added, columns]
  const std::int32_t* adapter_of_token = nullptr;  // [rows], -1 = none, whose ids are no added ones
  std::int64_t first_added = 0, count_added = 0;
};
[[nodiscard]] cudaError_t launch_table_rows(Number number, const TableParams& params,
                                            cudaStream_t stream);

// h[row, lane] = a[slot, ids[row], lane] of the row's slot, for the lanes of its rank; of eight
// bits times the scale of its block.
struct LanesParams {
  const void* a = nullptr;         // [slots, vocabulary, lanes]
  const float* a_scale = nullptr;  // [slots, blocks_down, blocks_across], null: none
  std::int64_t block_lanes = 1, block_ids = 1, blocks_down = 0, blocks_across = 0;
  const std::int32_t* ids = nullptr;
  const std::int32_t* adapter_of_token = nullptr;  // [rows], -1 = none
  const std::int32_t* rank = nullptr;              // [slots]
  void* h = nullptr;                               // [rows, lanes]
  std::int64_t rows = 0, vocabulary = 0, lanes = 0;
};
// h is kFp32, as A, or beside an A of eight bits any; cudaErrorInvalidValue else.
[[nodiscard]] cudaError_t launch_lanes_by_id(WeightNumber number, Number intermediate,
                                             const LanesParams& params, cudaStream_t stream);

// to[row, order[column]] = from[row, column].
struct ReorderParams {
  const void* from = nullptr;
  const std::int32_t* order = nullptr;  // [columns]
  void* to = nullptr;
  std::int64_t rows = 0, columns = 0;
};
[[nodiscard]] cudaError_t launch_reorder_columns(Number number, const ReorderParams& params,
                                                 cudaStream_t stream);

// y = scale * cap * tanh(y / cap), or scale * y where the cap is 0.
struct CapParams {
  void* y = nullptr;  // [rows, stride]
  std::int64_t rows = 0, columns = 0, stride = 0;
  float cap = 0, scale = 1;
};
[[nodiscard]] cudaError_t launch_cap(Number number, const CapParams& params, cudaStream_t stream);

}  // namespace lora_bench::kernels
