#include "kernels/gather/gather.h"

#include "kernels/dtype.cuh"
#include "kernels/elements.cuh"

namespace lora_bench::kernels {
namespace {

// Where a gathered row comes from; rank 0 = nowhere.
struct Source {
  std::int64_t token = 0;
  std::int64_t adapter = 0;
  std::int64_t rank = 0;
};

template <typename Params>
__device__ Source source_of(const Params& params, std::int64_t row) {
  Source source;
  source.token = params.token_order[row];
  source.adapter = params.adapter_of_token[source.token];
  source.rank = source.adapter < 0 ? 0 : params.rank[source.adapter];
  return source;
}

// A thread copies one Unit: 16 bytes, or an element where rows do not allow more. Strides and
// `count` in units. Bound: memory.
template <typename Unit>
__global__ void gather_x(const __grid_constant__ ShrinkParams params, Gathered to,
                         std::int64_t from_stride, std::int64_t to_stride, std::int64_t count) {
  for (std::int64_t item = first_element(); item < to.rows * count; item += all_threads()) {
    const std::int64_t row = item / count;
    const std::int64_t at = item % count;
    const Source source = source_of(params, row);
    if (source.rank > 0) {
      static_cast<Unit*>(to.data)[row * to_stride + at] =
          static_cast<const Unit*>(params.x)[source.token * from_stride + at];
    }
  }
}

// Item -> (slice, row, lane) of h.
struct HiddenPlace {
  std::int64_t slice = 0, row = 0, lane = 0;
};
__device__ HiddenPlace hidden_place(std::int64_t item, std::int64_t rows, std::int64_t max_rank) {
  return {item / max_rank / rows, item / max_rank % rows, item % max_rank};
}

// A thread copies one lane.
template <typename H>
__global__ void gather_h(const __grid_constant__ ExpandParams params, Gathered to) {
  const std::int64_t items = params.slices * to.rows * params.max_rank;
  for (std::int64_t item = first_element(); item < items; item += all_threads()) {
    const HiddenPlace place = hidden_place(item, to.rows, params.max_rank);
    const Source source = source_of(params, place.row);
    if (place.lane < source.rank) {
      static_cast<H*>(to.data)[(place.slice * to.rows + place.row) * to.stride + place.lane] =
          static_cast<const H*>(
              params
                  .h)[(place.slice * params.tokens + source.token) * params.max_rank + place.lane];
    }
  }
}

// A thread scales and stores one lane.
template <typename H>
__global__ void finish_h(const __grid_constant__ ShrinkParams params, Gathered sums, Gathered to) {
  const std::int64_t items = params.slices * sums.rows * params.max_rank;
  for (std::int64_t item = first_element(); item < items; item += all_threads()) {
    const HiddenPlace place = hidden_place(item, sums.rows, params.max_rank);
    const Source source = source_of(params, place.row);
    if (place.lane >= source.rank) {
      continue;
    }
    const float sum = static_cast<const float*>(
        sums.data)[(place.slice * sums.rows + place.row) * sums.stride + place.lane];
    const float scale = params.scale == nullptr ? 1.0F : params.scale[source.adapter];
    H* h = to.data == nullptr
               ? static_cast<H*>(params.h) +
                     (place.slice * params.tokens + source.token) * params.max_rank
               : static_cast<H*>(to.data) + (place.slice * to.rows + place.row) * to.stride;
    h[place.lane] = from_float<H>(scale * sum);
  }
}

template <typename T>
__global__ void widen(const T* from, std::int64_t from_stride, float* to, std::int64_t to_stride,
                      std::int64_t rows, std::int64_t count) {
  for (std::int64_t item = first_element(); item < rows * count; item += all_threads()) {
    to[item / count * to_stride + item % count] =
        to_float(from[item / count * from_stride + item % count]);
  }
}

// A thread owns one (row, column) and writes one element of y. Bound: memory.
template <typename T>
__global__ void scatter_y(const __grid_constant__ ExpandParams params, Gathered delta) {
  for (std::int64_t item = first_element(); item < delta.rows * params.columns;
       item += all_threads()) {
    const std::int64_t row = item / params.columns;
    const std::int64_t column_in_row = item % params.columns;
    const Source source = source_of(params, row);
    if (source.rank == 0) {
      continue;
    }
    std::int64_t column = column_in_row;
    int slice = 0;
    while (column >= params.width[slice]) {
      column -= params.width[slice++];
    }
    float value = static_cast<const float*>(delta.data)[row * delta.stride + column_in_row];
    if (params.scale != nullptr) {
      value *= params.scale[source.adapter];
    }
    if (params.bias[slice] != nullptr) {
      value += to_float(
          static_cast<const T*>(params.bias[slice])[source.adapter * params.width[slice] + column]);
    }
    T* y = static_cast<T*>(params.y) + source.token * params.y_stride + params.first_column +
           column_in_row;
    *y = from_float<T>(params.add_inputs ? value + to_float(*y) : value);
  }
}

template <typename... Params, typename... Arguments>
cudaError_t launch(void (*kernel)(Params...), std::int64_t items, cudaStream_t stream,
                   const Arguments&... arguments) {
  if (items == 0) {
    return cudaSuccess;
  }
  constexpr std::int64_t kMostBlocks = 2147483647;
  const std::int64_t blocks = (items - 1) / kElementThreads + 1;
  kernel<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kElementThreads, 0,
           stream>>>(arguments...);
  return cudaGetLastError();
}

bool starts_on_16_bytes(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

}  // namespace

cudaError_t launch_gather_x(Number number, const ShrinkParams& params, const Gathered& to,
                            cudaStream_t stream) {
  const std::int64_t bytes = number == Number::kFp32 ? 4 : 2;
  const auto whole = [&](std::int64_t elements) { return elements * bytes % 16 == 0; };
  if (starts_on_16_bytes(params.x) && starts_on_16_bytes(to.data) && whole(params.x_stride) &&
      whole(params.in_features) && whole(to.stride)) {
    const std::int64_t per_unit = 16 / bytes;
    const std::int64_t count = params.in_features / per_unit;
    return launch(gather_x<uint4>, to.rows * count, stream, params, to, params.x_stride / per_unit,
                  to.stride / per_unit, count);
  }
  const auto kernel = number == Number::kFp32 ? gather_x<std::uint32_t> : gather_x<std::uint16_t>;
  return launch(kernel, to.rows * params.in_features, stream, params, to, params.x_stride,
                to.stride, params.in_features);
}

cudaError_t launch_gather_h(Number intermediate, const ExpandParams& params, const Gathered& to,
                            cudaStream_t stream) {
  const auto kernel =
      intermediate == Number::kFp32 ? gather_h<std::uint32_t> : gather_h<std::uint16_t>;
  return launch(kernel, params.slices * to.rows * params.max_rank, stream, params, to);
}

cudaError_t launch_finish_h(Number intermediate, const ShrinkParams& params, const Gathered& sums,
                            const Gathered& to, cudaStream_t stream) {
  const auto kernel = intermediate == Number::kFp32   ? finish_h<float>
                      : intermediate == Number::kBf16 ? finish_h<__nv_bfloat16>
                                                      : finish_h<__half>;
  return launch(kernel, params.slices * sums.rows * params.max_rank, stream, params, sums, to);
}

cudaError_t launch_widen(Number number, const void* from, std::int64_t from_stride, float* to,
                         std::int64_t to_stride, std::int64_t rows, std::int64_t count,
                         cudaStream_t stream) {
  switch (number) {
    case Number::kBf16:
      return launch(widen<__nv_bfloat16>, rows * count, stream,
                    static_cast<const __nv_bfloat16*>(from), from_stride, to, to_stride, rows,
                    count);
    case Number::kFp16:
      return launch(widen<__half>, rows * count, stream, static_cast<const __half*>(from),
                    from_stride, to, to_stride, rows, count);
    case Number::kFp32:
      break;
  }
  return cudaErrorInvalidValue;
}

cudaError_t launch_scatter_y(Number number, const ExpandParams& params, const Gathered& delta,
                             cudaStream_t stream) {
  const auto kernel = number == Number::kFp32   ? scatter_y<float>
                      : number == Number::kBf16 ? scatter_y<__nv_bfloat16>
                                                : scatter_y<__half>;
  return launch(kernel, delta.rows * params.columns, stream, params, delta);
}

}  // namespace lora_bench::kernels
