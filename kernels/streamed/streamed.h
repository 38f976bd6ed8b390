#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/params.h"
#include "kernels/streamed/streamed_tuning.h"

namespace lora_bench::kernels {

// y = x W^T (+ bias), sums in fp32, rounded once: the base product of a layer for few rows.
struct StreamedParams {
  const void* x = nullptr;     // [tokens, x_stride]
  const void* w = nullptr;     // [columns, depth]
  const void* bias = nullptr;  // [columns]; null: none
  void* y = nullptr;           // [tokens, columns]
  std::int64_t tokens = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  std::int64_t x_stride = 0;
};
static_assert(std::is_trivially_copyable_v<StreamedParams> && sizeof(StreamedParams) < 1024);

// What adapters add to it before it is rounded. Of `shrink` its h and of `expand` its h and y are
// not used: h stays in `workspace`, y is that of the base, with expand.y_stride of its columns.
struct StreamedAdapters {
  ShrinkParams shrink;
  ExpandParams expand;
  // Both 0 before the first launch.
  std::uint32_t* words = nullptr;  // streamed_words() of them
  std::uint32_t* met = nullptr;    // tasks done, blocks that have read, whose turn of two sets
};
static_assert(std::is_trivially_copyable_v<StreamedAdapters> && sizeof(StreamedAdapters) < 2048);

// Whether operands begin on 16 bytes, as sizes that streamed_takes() and
// streamed_takes_adapters() take let them.
[[nodiscard]] bool streamed_copies(const StreamedParams& params);
[[nodiscard]] bool streamed_copies(const StreamedAdapters& adapters);

// May start while the kernel before it runs, of which it reads nothing but x and bias. `adapters`
// null: the base alone. All blocks must be on the device at once: no more than it has
// multiprocessors, and no other kernel of this one's stream that waits for it.
[[nodiscard]] cudaError_t launch_streamed(Number number, const StreamedParams& params,
                                          const StreamedAdapters* adapters, int multiprocessors,
                                          cudaStream_t stream);

}  // namespace lora_bench::kernels
