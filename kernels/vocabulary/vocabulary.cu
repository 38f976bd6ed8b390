#include "kernels/dtype.cuh"
#include "kernels/vocabulary/vocabulary.h"

namespace lora_bench::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;

__device__ std::int64_t first_element() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ std::int64_t all_threads() { return std::int64_t{gridDim.x} * blockDim.x; }

// A thread copies one element, here and in the next two kernels. Bound: memory.
template <typename T>
__global__ void table_rows(const TableParams params) {
  for (std::int64_t at = first_element(); at < params.rows * params.columns; at += all_threads()) {
    const std::int64_t row = params.ids[at / params.columns] - params.first;
    const bool here = row >= 0 && row < params.count;
    static_cast<T*>(params.to)[at] =
        here ? static_cast<const T*>(params.table)[row * params.columns + at % params.columns]
             : from_float<T>(0.0F);
  }
}

// Lanes above the rank, and rows without adapter, belong to nobody and stay as they are.
template <typename T, typename H>
__global__ void lanes_by_id(const LanesParams params) {
  for (std::int64_t at = first_element(); at < params.rows * params.lanes; at += all_threads()) {
    const std::int64_t row = at / params.lanes;
    const std::int64_t lane = at % params.lanes;
    const std::int32_t slot = params.adapter_of_token[row];
    if (slot >= 0 && lane < params.rank[slot]) {
      const std::int64_t from = (slot * params.vocabulary + params.ids[row]) * params.lanes + lane;
      static_cast<H*>(params.h)[at] =
          from_float<H>(to_float(static_cast<const T*>(params.a)[from]));
    }
  }
}

template <typename T>
__global__ void reorder_columns(const ReorderParams params) {
  for (std::int64_t at = first_element(); at < params.rows * params.columns; at += all_threads()) {
    const std::int64_t row = at / params.columns;
    static_cast<T*>(params.to)[row * params.columns + params.order[at % params.columns]] =
        static_cast<const T*>(params.from)[at];
  }
}

// A thread has one element to itself. Bound: memory.
template <typename T>
__global__ void cap_logits(const CapParams params) {
  for (std::int64_t at = first_element(); at < params.rows * params.columns; at += all_threads()) {
    T& y = static_cast<T*>(params.y)[at / params.columns * params.stride + at % params.columns];
    float value = to_float(y);
    if (params.cap > 0) {
      value = params.cap * tanhf(value / params.cap);
    }
    y = from_float<T>(value * params.scale);
  }
}

unsigned blocks_for(std::int64_t elements) {
  const std::int64_t blocks = (elements + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

// Calls `launch` with an element of the number and the grid, where there is anything to do.
template <typename Launch>
cudaError_t dispatch(Number number, std::int64_t elements, Launch launch) {
  if (elements == 0) {
    return cudaSuccess;
  }
  switch (number) {
    case Number::kFp32:
      launch(float{}, blocks_for(elements));
      break;
    case Number::kBf16:
      launch(__nv_bfloat16{}, blocks_for(elements));
      break;
    case Number::kFp16:
      launch(__half{}, blocks_for(elements));
      break;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_table_rows(Number number, const TableParams& params, cudaStream_t stream) {
  return dispatch(number, params.rows * params.columns, [&](auto element, unsigned blocks) {
    table_rows<decltype(element)><<<blocks, kThreads, 0, stream>>>(params);
  });
}

cudaError_t launch_lanes_by_id(Number number, Number intermediate, const LanesParams& params,
                               cudaStream_t stream) {
  return dispatch(number, params.rows * params.lanes, [&](auto element, unsigned blocks) {
    using T = decltype(element);
    if (intermediate == Number::kFp32) {
      lanes_by_id<T, float><<<blocks, kThreads, 0, stream>>>(params);
    } else {
      lanes_by_id<T, T><<<blocks, kThreads, 0, stream>>>(params);
    }
  });
}

cudaError_t launch_reorder_columns(Number number, const ReorderParams& params,
                                   cudaStream_t stream) {
  return dispatch(number, params.rows * params.columns, [&](auto element, unsigned blocks) {
    reorder_columns<decltype(element)><<<blocks, kThreads, 0, stream>>>(params);
  });
}

cudaError_t launch_cap(Number number, const CapParams& params, cudaStream_t stream) {
  return dispatch(number, params.rows * params.columns, [&](auto element, unsigned blocks) {
    cap_logits<decltype(element)><<<blocks, kThreads, 0, stream>>>(params);
  });
}

}  // namespace lora_bench::kernels
