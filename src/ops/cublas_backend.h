#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "ops/backend.h"

namespace lora_bench {

inline constexpr std::string_view kCublasSummary =
    "what one has without kernels: rows gathered by adapter, a cuBLAS product for each adapter and "
    "slice, the delta scattered; x in place where its rows lie by adapter; every op with products "
    "in bf16, fp16 and fp32";

// Where each part of the workspace begins, in bytes; every part on 256. Strides are elements.
struct CublasWorkspace {
  std::int64_t library = 0;   // cuBLAS's own
  std::int64_t x = 0;         // [rows, x_stride] of the problem's dtype
  std::int64_t h = 0;         // [slices, rows, h_stride] fp32
  std::int64_t narrow_h = 0;  // the same in a 16-bit intermediate
  std::int64_t wide_b = 0;    // [widest slice, h_stride] fp32, of one adapter and slice at a time
  std::int64_t delta = 0;     // [rows, columns] fp32
  std::int64_t bytes = 0;
  bool x_in_place = false;  // its rows lie by adapter already: nothing is gathered
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;
  std::int64_t h_stride = 0;
  std::int64_t columns = 0;
};
[[nodiscard]] CublasWorkspace cublas_workspace(const Problem& problem);
[[nodiscard]] Numerics cublas_numerics(const Problem& problem);

// Throws EnvironmentError where why_no_cublas() has a reason.
[[nodiscard]] std::unique_ptr<Backend> make_cublas_backend();

}  // namespace lora_bench
