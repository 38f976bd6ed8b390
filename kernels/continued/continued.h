#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/continued/continued_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// Writes h behind the columns of x and B behind those of W, so that a product over so many more
// columns is that of the base and its adapters. Of x and W nothing else is written.
struct ContinuedParams {
  ExpandParams expand;  // of y, bias and the plan but adapter_of_token nothing is read
  void* x = nullptr;    // [tokens, x_stride]
  void* w = nullptr;    // [all columns of y, w_stride]
  std::int64_t depth = 0;
  std::int64_t x_stride = 0;
  std::int64_t w_stride = 0;
  std::int64_t all_columns = 0;
  std::int32_t blocks = 0;
  std::int32_t slot[kContinuedBlocks] = {};  // of each block; rows of others have 0 there
  bool wide_hidden = true;                   // h is of fp32, else as x
};
static_assert(std::is_trivially_copyable_v<ContinuedParams> && sizeof(ContinuedParams) < 4096);

// Whether x, W, h and B begin on 16 bytes.
[[nodiscard]] bool continued_copies(const ContinuedParams& params);

// May start while the kernel before it runs, and waits for it. bf16 alone.
[[nodiscard]] cudaError_t launch_continued(const ContinuedParams& params, int multiprocessors,
                                           cudaStream_t stream);

}  // namespace lora_bench::kernels
