#include <type_traits>

#include "kernels/naive/naive.cuh"
#include "kernels/quantise/convert.cuh"

namespace lora_bench::kernels {
namespace {

// Calls `launch` with a type of eight bits.
template <typename Launch>
cudaError_t visit_eight_bits(WeightNumber number, Launch launch) {
  switch (number) {
    case WeightNumber::kE4m3:
      return launch.template operator()<E4m3>();
    case WeightNumber::kE5m2:
      return launch.template operator()<E5m2>();
    default:
      return cudaErrorInvalidValue;
  }
}

// The same with one of more bits.
template <typename Launch>
cudaError_t visit_more_bits(Number number, Launch launch) {
  switch (number) {
    case Number::kFp32:
      return launch.template operator()<float>();
    case Number::kBf16:
      return launch.template operator()<__nv_bfloat16>();
    case Number::kFp16:
      return launch.template operator()<__half>();
  }
  return cudaErrorInvalidValue;
}

// A warp owns a row of a slice of h, and makes one group of its lanes after the other.
template <typename F>
__global__ void naive_quantise_h(const __grid_constant__ ShrinkParams params,
                                 const __grid_constant__ NaiveStrides strides,
                                 const __grid_constant__ QuantiseParams rule) {
  using Code = std::conditional_t<F::kE5m2, E5m2, E4m3>;
  const std::int64_t items = params.tokens * params.slices;
  const std::int64_t warps = std::int64_t{gridDim.x} * (blockDim.x / kWarp);
  const int thread = static_cast<int>(threadIdx.x % kWarp);
  std::int64_t item = std::int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  for (; item < items; item += warps) {
    const std::int64_t token = item / params.slices;
    const std::int64_t slice = item % params.slices;
    const std::int64_t adapter = params.adapter_of_token[token];
    const std::int64_t rank = adapter < 0 ? 0 : params.rank[adapter];
    float* const h = static_cast<float*>(params.h) + token * strides.h_row +
                     slice * (strides.packed ? rank : strides.h_slice);
    const std::int64_t group = rule.group > 0 ? rule.group : rank;
    for (std::int64_t first = 0; first < rank; first += group) {
      const std::int64_t end = first + group < rank ? first + group : rank;
      float amax = 0;
      for (std::int64_t lane = first + thread; lane < end; lane += kWarp) {
        amax = fmaxf(amax, fabsf(h[lane]));
      }
      for (int by = kWarp / 2; by > 0; by /= 2) {
        amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFU, amax, by));
      }
      const float scale = scale_for<F>(rule, amax);
      const AnyScale convert(rule, scale);
      for (std::int64_t lane = first + thread; lane < end; lane += kWarp) {
        const auto code = static_cast<std::uint8_t>(code_by_shifts<F>(convert(h[lane])));
        h[lane] = to_float(Code{code}) * scale;
      }
    }
  }
}

}  // namespace

cudaError_t launch_naive_quantise_h(bool e5m2, const ShrinkParams& params,
                                    const NaiveStrides& strides, const QuantiseParams& rule,
                                    const NaiveTuning& tuning, cudaStream_t stream) {
  if (tuning.blocks == 0) {
    return cudaSuccess;
  }
  const auto blocks = static_cast<unsigned>(tuning.blocks);
  const auto threads = static_cast<unsigned>(tuning.threads_per_block);
  const auto kernel =
      e5m2 ? naive_quantise_h<Format<true, false>> : naive_quantise_h<Format<false, false>>;
  kernel<<<blocks, threads, 0, stream>>>(params, strides, rule);
  return cudaGetLastError();
}

cudaError_t launch_naive_shrink_eight_bits(WeightNumber x, WeightNumber weights, Number h,
                                           const ShrinkParams& params, const NaiveStrides& strides,
                                           const NaiveScales& scales,
                                           const NaiveRowScales& scales_of_x,
                                           const NaiveTuning& tuning, cudaStream_t stream) {
  if (tuning.blocks == 0) {
    return cudaSuccess;
  }
  const auto blocks = static_cast<unsigned>(tuning.blocks);
  const auto threads = static_cast<unsigned>(tuning.threads_per_block);
  return visit_eight_bits(x, [&]<typename X>() {
    return visit_eight_bits(weights, [&]<typename W>() {
      return visit_more_bits(h, [&]<typename H>() {
        naive_shrink<X, W, H><<<blocks, threads, 0, stream>>>(params, strides, scales, scales_of_x);
        return cudaGetLastError();
      });
    });
  });
}

cudaError_t launch_naive_expand_eight_bits(Number y, WeightNumber weights, WeightNumber h,
                                           const ExpandParams& params, const NaiveStrides& strides,
                                           const NaiveScales& scales,
                                           const NaiveRowScales& scales_of_h,
                                           const NaiveTuning& tuning, cudaStream_t stream) {
  if (tuning.blocks == 0) {
    return cudaSuccess;
  }
  const auto blocks = static_cast<unsigned>(tuning.blocks);
  const auto threads = static_cast<unsigned>(tuning.threads_per_block);
  return visit_more_bits(y, [&]<typename Y>() {
    return visit_eight_bits(weights, [&]<typename W>() {
      return visit_eight_bits(h, [&]<typename H>() {
        naive_expand<Y, W, H><<<blocks, threads, 0, stream>>>(params, strides, scales, scales_of_h);
        return cudaGetLastError();
      });
    });
  });
}

}  // namespace lora_bench::kernels
