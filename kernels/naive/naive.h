#pragma once

#include <cuda_runtime_api.h>

#include "kernels/naive/naive_tuning.h"
#include "kernels/params.h"
#include "kernels/quantise/quantise.h"
#include "kernels/weight_number.h"

namespace lora_bench::kernels {

// The storage of what one op reads and writes: x or y, the weights (A, or B and bias; beside a B of
// eight bits a bias is as the rows) and h, which is kFp32 or as the rows.
struct NaiveNumbers {
  Number rows = Number::kBf16;
  WeightNumber weights = WeightNumber::kBf16;
  Number h = Number::kFp32;
};

// Of weights of eight bits. A row is a lane of A or an output of B, a column an element of it;
// those of a block have one scale.
struct NaiveScales {
  const float* of_slice[kMaxSlices] = {};     // each [slots, rows of blocks, blocks_across]
  std::int64_t slot_stride[kMaxSlices] = {};  // from a slot's scales to the next
  std::int64_t block_rows[kMaxSlices] = {};
  std::int64_t block_columns = 1, blocks_across = 1;
};

// Of an x or an h of eight bits: how far the scales of a token, and of a slice that has rows of its
// own, lie from those before (0: they are the same), and how many columns have one.
struct NaiveRowScales {
  const float* of_rows = nullptr;
  std::int64_t token_stride = 0, slice_stride = 0, block_columns = 1;
};

// How the operands of a step lie (Problem::layout), in elements.
struct NaiveStrides {
  std::int64_t x_column = 1;            // from a column of x to the next
  std::int64_t a_lane = 0, a_slot = 0;  // from a lane of A, or a slot, to the next
  std::int64_t b_output = 0;            // from an output of B to the next
  std::int64_t h_row = 0, h_slice = 0;  // from a row of h, or a slice, to the next
  bool stacked = false;                 // a slot of B and bias has the outputs of all slices
  bool packed = false;  // lanes of a slice in A and h follow those of the slice before, as many as
                        // the adapter's rank
};

// Any other h is cudaErrorInvalidValue. Pointers need the alignment of their element only.
[[nodiscard]] cudaError_t launch_naive_shrink(const NaiveNumbers& numbers,
                                              const ShrinkParams& params,
                                              const NaiveStrides& strides,
                                              const NaiveScales& scales, const NaiveTuning& tuning,
                                              cudaStream_t stream);
// The same of an x and an A of eight bits, beside an h of any type.
[[nodiscard]] cudaError_t launch_naive_shrink_eight_bits(
    WeightNumber x, WeightNumber weights, Number h, const ShrinkParams& params,
    const NaiveStrides& strides, const NaiveScales& scales, const NaiveRowScales& scales_of_x,
    const NaiveTuning& tuning, cudaStream_t stream);
// Quantises an h of fp32 in place, between the two: each lane below the rank becomes its code times
// its scale. Of the rule group (0: all lanes), least_amax, least_scale, multiplies and power_of_two
// are read.
[[nodiscard]] cudaError_t launch_naive_quantise_h(bool e5m2, const ShrinkParams& params,
                                                  const NaiveStrides& strides,
                                                  const QuantiseParams& rule,
                                                  const NaiveTuning& tuning, cudaStream_t stream);
[[nodiscard]] cudaError_t launch_naive_expand(const NaiveNumbers& numbers,
                                              const ExpandParams& params,
                                              const NaiveStrides& strides,
                                              const NaiveScales& scales, const NaiveTuning& tuning,
                                              cudaStream_t stream);
// The same of an h and a B of eight bits, beside a y of any type.
[[nodiscard]] cudaError_t launch_naive_expand_eight_bits(
    Number y, WeightNumber weights, WeightNumber h, const ExpandParams& params,
    const NaiveStrides& strides, const NaiveScales& scales, const NaiveRowScales& scales_of_h,
    const NaiveTuning& tuning, cudaStream_t stream);

}  // namespace lora_bench::kernels
