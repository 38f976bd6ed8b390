#include "kernels/dtype.cuh"
#include "kernels/elements.cuh"
#include "kernels/exchange/exchange.h"
#include "kernels/link.cuh"

namespace lora_bench::kernels {
namespace {

// A thread adds one element of all parts and stores it everywhere: nobody else reads or writes that
// place, so a target may be a part. Bound: memory.
template <typename T>
__global__ void sum_parts(const __grid_constant__ ExchangeParams params) {
  const std::int64_t elements = params.rows * params.columns;
  for (std::int64_t at = first_element(); at < elements; at += all_threads()) {
    float sum = to_float(static_cast<const T*>(params.part[0])[at]);
    for (int part = 1; part < params.parts; ++part) {
      sum += to_float(static_cast<const T*>(params.part[part])[at]);
    }
    for (int target = 0; target < params.targets; ++target) {
      static_cast<T*>(params.to[target])[at] = from_float<T>(sum);
    }
  }
}

// A thread copies one element to all targets. Bound: memory.
template <typename T>
__global__ void gather_parts(const __grid_constant__ ExchangeParams params) {
  const std::int64_t width = params.parts * params.columns;
  for (std::int64_t at = first_element(); at < params.rows * width; at += all_threads()) {
    const std::int64_t row = at / width;
    const std::int64_t column = at % width;
    const T value = static_cast<const T*>(
        params.part[column / params.columns])[row * params.columns + column % params.columns];
    for (int target = 0; target < params.targets; ++target) {
      static_cast<T*>(params.to[target])[at] = value;
    }
  }
}

template <typename T, int kCount>
struct alignas(kCount * sizeof(T)) Vector {
  T element[kCount];
};

// A thread adds kCount neighbours of one row; blocks of a column of the grid share the rows. Bound:
// memory, or the launch where rows are few.
template <typename T, int kCount>
__global__ void add_delta(const __grid_constant__ AddDeltaParams params) {
  using Some = Vector<T, kCount>;
  const std::int64_t column = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  await_previous_kernel();
  if (column >= params.columns) {
    return;
  }
  for (std::int64_t row = blockIdx.y; row < params.tokens; row += gridDim.y) {
    const std::int32_t adapter = params.adapter_of_token[row];
    if (adapter < 0 || params.rank[adapter] == 0) {
      continue;
    }
    const std::int64_t at = row * params.stride + params.first_column + column;
    auto* const place = reinterpret_cast<Some*>(static_cast<T*>(params.y) + at);
    const Some delta = *reinterpret_cast<const Some*>(static_cast<const T*>(params.delta) + at);
    Some y = *place;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      y.element[i] = from_float<T>(to_float(y.element[i]) + to_float(delta.element[i]));
    }
    *place = y;
  }
}

template <typename T, int kCount>
cudaError_t launch_add_delta_as(const AddDeltaParams& params, cudaStream_t stream) {
  constexpr std::int64_t kMostRows = 1024;
  const std::int64_t columns = params.columns / kCount;
  cudaFuncAttributes code = {};
  if (const cudaError_t error = cudaFuncGetAttributes(&code, add_delta<T, kCount>);
      error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute link = {};
  link.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  link.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>((columns + kElementThreads - 1) / kElementThreads),
           static_cast<unsigned>(params.tokens < kMostRows ? params.tokens : kMostRows));
  config.blockDim = dim3(kElementThreads);
  config.stream = stream;
  config.attrs = &link;
  config.numAttrs = code.ptxVersion >= 90 ? 1 : 0;  // older code has no wait
  return cudaLaunchKernelEx(&config, add_delta<T, kCount>, params);
}

// Whether every row's own columns can be read 16 bytes at a time.
template <typename T>
bool lies_in_vectors(const AddDeltaParams& params) {
  const auto whole = [](std::int64_t elements) {
    return elements * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
  };
  const auto begins = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; };
  return whole(params.stride) && whole(params.first_column) && whole(params.columns) &&
         begins(params.y) && begins(params.delta);
}

}  // namespace

cudaError_t launch_sum_parts(Number number, const ExchangeParams& params, cudaStream_t stream) {
  const std::int64_t elements = params.parts == 0 ? 0 : params.rows * params.columns;
  return for_elements(number, elements, [&](auto element, unsigned blocks) {
    sum_parts<decltype(element)><<<blocks, kElementThreads, 0, stream>>>(params);
  });
}

cudaError_t launch_add_delta(Number number, const AddDeltaParams& params, cudaStream_t stream) {
  cudaError_t error = cudaSuccess;
  const cudaError_t launched =
      for_elements(number, params.tokens * params.columns, [&](auto element, unsigned) {
        using T = decltype(element);
        error = lies_in_vectors<T>(params) ? launch_add_delta_as<T, 16 / sizeof(T)>(params, stream)
                                           : launch_add_delta_as<T, 1>(params, stream);
      });
  return error != cudaSuccess ? error : launched;
}

cudaError_t launch_gather_parts(Number number, const ExchangeParams& params, cudaStream_t stream) {
  const std::int64_t elements = params.rows * params.columns * params.parts;
  return for_elements(number, elements, [&](auto element, unsigned blocks) {
    gather_parts<decltype(element)><<<blocks, kElementThreads, 0, stream>>>(params);
  });
}

}  // namespace lora_bench::kernels
