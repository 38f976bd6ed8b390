#include <type_traits>

#include "kernels/dtype.cuh"
#include "kernels/elements.cuh"
#include "kernels/vocabulary/vocabulary.h"

namespace lora_bench::kernels {
namespace {

// A thread copies one element, here and in the next two kernels. Bound: memory.
template <typename T>
__global__ void table_rows(const TableParams params) {
  for (std::int64_t at = first_element(); at < params.rows * params.columns; at += all_threads()) {
    const std::int64_t token = at / params.columns;
    const std::int64_t id = params.ids[token];
    const bool added = id >= params.vocabulary;
    std::int64_t row = added ? id - params.vocabulary - params.first_added : id - params.first;
    const bool here = row >= 0 && row < (added ? params.count_added : params.count);
    if (here && added) {
      row += params.adapter_of_token[token] * params.count_added;
    }
    const T* const table = static_cast<const T*>(added ? params.added : params.table);
    static_cast<T*>(params.to)[at] =
        here ? table[row * params.columns + at % params.columns] : from_float<T>(0.0F);
  }
}

__device__ inline float scale_of_lane(const LanesParams& params, std::int64_t slot,
                                      std::int64_t lane, std::int64_t id) {
  const std::int64_t down = slot * params.blocks_down + lane / params.block_lanes;
  return params.a_scale[down * params.blocks_across + id / params.block_ids];
}

// Lanes above the rank, and rows without adapter, belong to nobody and stay as they are.
template <typename T, typename H>
__global__ void lanes_by_id(const LanesParams params) {
  for (std::int64_t at = first_element(); at < params.rows * params.lanes; at += all_threads()) {
    const std::int64_t row = at / params.lanes;
    const std::int64_t lane = at % params.lanes;
    const std::int32_t slot = params.adapter_of_token[row];
    if (slot >= 0 && lane < params.rank[slot]) {
      const std::int64_t id = params.ids[row];
      const std::int64_t from = (slot * params.vocabulary + id) * params.lanes + lane;
      float value = to_float(static_cast<const T*>(params.a)[from]);
      if constexpr (kIsEightBits<T>) {
        value *= scale_of_lane(params, slot, lane, id);
      }
      static_cast<H*>(params.h)[at] = from_float<H>(value);
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

template <typename T>
cudaError_t launch_lanes_of(Number intermediate, const LanesParams& params, cudaStream_t stream) {
  bool takes = true;
  const auto launch = [&](auto element, unsigned blocks) {
    using H = decltype(element);
    if constexpr (kIsEightBits<T> || std::is_same_v<H, float> || std::is_same_v<H, T>) {
      lanes_by_id<T, H><<<blocks, kElementThreads, 0, stream>>>(params);
    } else {
      takes = false;
    }
  };
  const cudaError_t error = for_elements(intermediate, params.rows * params.lanes, launch);
  return takes ? error : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t launch_table_rows(Number number, const TableParams& params, cudaStream_t stream) {
  return for_elements(number, params.rows * params.columns, [&](auto element, unsigned blocks) {
    table_rows<decltype(element)><<<blocks, kElementThreads, 0, stream>>>(params);
  });
}

cudaError_t launch_lanes_by_id(WeightNumber number, Number intermediate, const LanesParams& params,
                               cudaStream_t stream) {
  switch (number) {
    case WeightNumber::kFp32:
      return launch_lanes_of<float>(intermediate, params, stream);
    case WeightNumber::kBf16:
      return launch_lanes_of<__nv_bfloat16>(intermediate, params, stream);
    case WeightNumber::kFp16:
      return launch_lanes_of<__half>(intermediate, params, stream);
    case WeightNumber::kE4m3:
      return launch_lanes_of<E4m3>(intermediate, params, stream);
    case WeightNumber::kE5m2:
      return launch_lanes_of<E5m2>(intermediate, params, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t launch_reorder_columns(Number number, const ReorderParams& params,
                                   cudaStream_t stream) {
  return for_elements(number, params.rows * params.columns, [&](auto element, unsigned blocks) {
    reorder_columns<decltype(element)><<<blocks, kElementThreads, 0, stream>>>(params);
  });
}

cudaError_t launch_cap(Number number, const CapParams& params, cudaStream_t stream) {
  return for_elements(number, params.rows * params.columns, [&](auto element, unsigned blocks) {
    cap_logits<decltype(element)><<<blocks, kElementThreads, 0, stream>>>(params);
  });
}

}  // namespace lora_bench::kernels
