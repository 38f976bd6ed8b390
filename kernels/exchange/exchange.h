#pragma once

#include <cuda_runtime_api.h>

#include "kernels/params.h"

namespace lora_bench::kernels {

// What shards exchange, where one device has them all: parts [rows, columns], dense.
constexpr int kMaxShards = 64;

struct ExchangeParams {
  const void* part[kMaxShards] = {};
  void* to[kMaxShards] = {};
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int32_t parts = 0;
  std::int32_t targets = 0;
};
static_assert(std::is_trivially_copyable_v<ExchangeParams> && sizeof(ExchangeParams) < 4096);

// Every `to` [rows, columns] = the sum of the parts in fp32, in their order, rounded once. A target
// may be a part.
[[nodiscard]] cudaError_t launch_sum_parts(Number number, const ExchangeParams& params,
                                           cudaStream_t stream);
// Every `to` [rows, parts * columns] = the parts side by side.
[[nodiscard]] cudaError_t launch_gather_parts(Number number, const ExchangeParams& params,
                                              cudaStream_t stream);

// What adapters add to a layer, made apart from its base: y = y + delta, in fp32, rounded once.
// Both [tokens, stride] and of one dtype; of a row without an adapter, or with one of rank 0,
// neither is touched.
struct AddDeltaParams {
  const void* delta = nullptr;
  void* y = nullptr;
  const std::int32_t* adapter_of_token = nullptr;  // [tokens], -1 = none
  const std::int32_t* rank = nullptr;              // [slots]
  std::int64_t tokens = 0;
  std::int64_t stride = 0;
  std::int64_t first_column = 0;
  std::int64_t columns = 0;
};
static_assert(std::is_trivially_copyable_v<AddDeltaParams> && sizeof(AddDeltaParams) < 4096);

// May start while the kernels before it run.
[[nodiscard]] cudaError_t launch_add_delta(Number number, const AddDeltaParams& params,
                                           cudaStream_t stream);

}  // namespace lora_bench::kernels
