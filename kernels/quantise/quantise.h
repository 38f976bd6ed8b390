#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/params.h"

namespace lora_bench::kernels {

// x [rows, stride] as codes [rows, columns] with scales: one for each row and run of `group`
// columns, or one for all (`group` is then all columns). What a scale and a code are: QuantiserSpec
// of src/scenario/eight_bits.h.
struct QuantiseParams {
  const void* x = nullptr;
  std::uint8_t* codes = nullptr;
  float* made = nullptr;         // the scales, or null where they are given
  const float* given = nullptr;  // or null where they are made
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  std::int64_t group = 0;
  float least_amax = 0;
  float least_scale = 0;  // a normal number
  bool one_scale = false;
  bool multiplies = false;
  bool power_of_two = false;
};
static_assert(std::is_trivially_copyable_v<QuantiseParams>);

// Any alignment of the elements, any sizes; 16 bytes at a time where addresses, stride and groups
// allow. Several launches where one scale is made for all.
[[nodiscard]] cudaError_t launch_quantise(Number from, bool e5m2, const QuantiseParams& params,
                                          int compute_capability, cudaStream_t stream);

}  // namespace lora_bench::kernels
