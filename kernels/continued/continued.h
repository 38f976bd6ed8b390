#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/continued/continued_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// Writes h behind the columns of x and B behind those of W, so that a product over so many more
// columns is that of the base and its adapters. Of x and W nothing else is written. h of adapters
// without a block goes to where expand reads it.
struct ContinuedParams {
  ShrinkParams shrink;  // h is fp32
  ExpandParams expand;  // of y, bias and h nothing is read
  void* x = nullptr;    // [tokens, x_stride]
  void* w = nullptr;    // [all columns of y, w_stride]
  std::int64_t depth = 0;
  std::int64_t x_stride = 0;
  std::int64_t w_stride = 0;
  std::int64_t all_columns = 0;
  std::int32_t blocks = 0;
  std::int32_t slot[kContinuedBlocks] = {};  // of each block; rows of others have 0 there
  std::int32_t tiles = 0;                    // of rows, continued_tiles() of all groups
  std::int32_t few = 0;                      // continued_few() of all groups
  std::int32_t columns_each = 0;             // of K, of a block of threads
  std::int32_t pitch = 0;                    // bytes between rows of A in shared memory
};
static_assert(std::is_trivially_copyable_v<ContinuedParams> && sizeof(ContinuedParams) < 4096);

// Whether x, W, A and B begin on 16 bytes.
[[nodiscard]] bool continued_copies(const ContinuedParams& params);

// May start while the kernel before it runs, of which it reads x alone. bf16 on sm_90. The launch
// sets columns_each and pitch.
[[nodiscard]] cudaError_t launch_continued(ContinuedParams params, int multiprocessors,
                                           cudaStream_t stream);

}  // namespace lora_bench::kernels
