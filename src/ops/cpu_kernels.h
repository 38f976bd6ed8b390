#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace lora_bench {

// The inner loops of the cpu backend, compiled once an instruction set from one source
// (cpu_kernels_body.inc). Every sum runs in an order that depends on K or the rank alone: a tile of
// many rows does for each of them exactly what a tile of one row does.
struct CpuKernels {
  const char* name = "";          // "avx512"
  std::int64_t width = 0;         // fp32 numbers in a vector
  std::int64_t tile_rows = 0;     // of both products
  std::int64_t tile_lanes = 0;    // of the shrink product
  std::int64_t tile_columns = 0;  // of the expand product: the width of a panel of B

  // `count` numbers to fp32, then zeros up to a multiple of `width`.
  void (*decode)(Dtype dtype, const void* from, std::int64_t count, float* to);
  void (*encode)(Dtype dtype, const float* from, std::int64_t count, void* to);

  // partial[row][lane][width] += x[row] * a[lane], elementwise along k; k a multiple of `width`,
  // rows <= tile_rows, lanes <= tile_lanes; partial_stride is between rows.
  void (*dot)(std::int64_t rows, std::int64_t lanes, std::int64_t k, const float* x,
              std::int64_t x_stride, const float* a, std::int64_t a_stride, float* partial,
              std::int64_t partial_stride);
  // The same sums for lanes of A as they are stored, for any k; x has zeros up to a multiple of
  // `width`. `ahead` are the lanes that come next, to fetch them early: addresses that are not
  // read.
  void (*dot_stored)(Dtype dtype, std::int64_t rows, std::int64_t lanes, std::int64_t k,
                     const float* x, std::int64_t x_stride, const void* const* a,
                     const void* const* ahead, float* partial, std::int64_t partial_stride);
  // The sum of one `partial`: halves are added until one number is left.
  float (*sum)(const float* partial);

  // B rows [columns][rank] -> panel [rank][tile_columns]; missing columns become 0. Reads no lane
  // at or above the rank.
  void (*transpose)(Dtype dtype, const void* b, std::int64_t b_stride, std::int64_t columns,
                    std::int64_t rank, float* panel);
  // out[row][tile_columns] = sum over r, ascending, of h[row][r] * panel[r][.]; rows <= tile_rows.
  void (*multiply_panel)(std::int64_t rows, std::int64_t rank, const float* h,
                         std::int64_t h_stride, const float* panel, float* out);
  // y = (add ? y : 0) + (delta * scale + bias); bias may be null.
  void (*finish)(Dtype dtype, const float* delta, float scale, const float* bias, bool add,
                 std::int64_t count, void* y);

  // Reads every byte (a multiple of 512); the result only keeps the reads alive.
  std::uint64_t (*read_stream)(const void* from, std::int64_t bytes);
  // Multiplies and adds in registers alone; returns the floating-point operations done.
  double (*spin_flops)(std::int64_t rounds);
};

// The best that this processor has.
[[nodiscard]] const CpuKernels& cpu_kernels();
// "baseline", "avx2", "avx512"; null when the processor or the build lacks it.
[[nodiscard]] const CpuKernels* cpu_kernels(const char* name);

namespace baseline {
[[nodiscard]] const CpuKernels& kernels();
}
namespace avx2 {
[[nodiscard]] const CpuKernels& kernels();
}
namespace avx512 {
[[nodiscard]] const CpuKernels& kernels();
}

}  // namespace lora_bench
