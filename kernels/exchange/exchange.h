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

}  // namespace lora_bench::kernels
