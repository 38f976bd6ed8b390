#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "ops/backend.h"
#include "workload/problem.h"

namespace lora_bench {

// What layers of a vocabulary do beside products, in the memory of a space: on a host at once, on a
// device enqueued (kernels/vocabulary). Throw EnvironmentError without CUDA.

// to[row] = table[ids[row] - first], zeros where the id lies outside of [first, first + count). An
// id from `vocabulary` on is one that the row's adapter added: what is after that is the row of
// `added`, less `first_added`, zeros where it lies outside of count_added.
struct TableRows {
  Dtype dtype = Dtype::kBf16;
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
void read_table(Space space, const TableRows& rows, Stream stream);

// h[row, lane] = a[slot, ids[row], lane] of the row's slot, for the lanes of its rank; of eight
// bits times its scale.
struct LanesById {
  Dtype dtype = Dtype::kBf16, intermediate = Dtype::kFp32;
  const void* a = nullptr;         // [slots, vocabulary, lanes]
  const float* a_scale = nullptr;  // [slots, down, across], whose rows are lanes; null: none
  ScaleBlocks scales = {};
  const std::int32_t* ids = nullptr;
  const std::int32_t* adapter_of_token = nullptr;
  const std::int32_t* rank = nullptr;
  void* h = nullptr;  // [rows, lanes]
  std::int64_t rows = 0, vocabulary = 0, lanes = 0;
};
void read_lanes(Space space, const LanesById& lanes, Stream stream);

// to[row, order[column]] = from[row, column].
struct ReorderedColumns {
  Dtype dtype = Dtype::kBf16;
  const void* from = nullptr;
  const std::int32_t* order = nullptr;
  void* to = nullptr;
  std::int64_t rows = 0, columns = 0;
};
void reorder_columns(Space space, const ReorderedColumns& columns, Stream stream);

// y = scale * cap * tanh(y / cap), or scale * y where the cap is 0; in fp32, rounded once.
struct CappedLogits {
  Dtype dtype = Dtype::kBf16;
  void* y = nullptr;  // [rows, stride]
  std::int64_t rows = 0, columns = 0, stride = 0;
  float cap = 0, scale = 1;
};
void cap_logits(Space space, const CappedLogits& logits, Stream stream);

}  // namespace lora_bench
