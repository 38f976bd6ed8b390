#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

// Products of four warps together (wgmma) with both operands in shared memory: 64 rows of x times
// lanes of A, 16 elements of K. Both lie as rows of 128 bytes, chunk c of row r at c ^ (r % 8).
namespace lora_bench::kernels {

// What tells the hardware where rows begin, on a multiple of 1024 bytes; 32 bytes further along
// the rows are 2 more.
__device__ inline std::uint64_t rows_of_128(std::uint32_t address) {
  constexpr std::uint64_t kEightRows = 1024 >> 4;
  constexpr std::uint64_t kSwizzled = std::uint64_t{1} << 62;
  return (address & 0x3FFFFU) >> 4 | std::uint64_t{1} << 16 | kEightRows << 32 | kSwizzled;
}

// The text of an instruction and its operands have to be literal.
#define LORA_BENCH_REGISTERS_12 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11"
#define LORA_BENCH_REGISTERS_16 LORA_BENCH_REGISTERS_12 ", %12, %13, %14, %15"
#define LORA_BENCH_REGISTERS_24 LORA_BENCH_REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define LORA_BENCH_REGISTERS_48                                  \
  LORA_BENCH_REGISTERS_24                                        \
  ", %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35" \
  ", %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define LORA_BENCH_REGISTERS_64                                  \
  LORA_BENCH_REGISTERS_48                                        \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59" \
  ", %60, %61, %62, %63"
#define LORA_BENCH_REGISTERS_96                                  \
  LORA_BENCH_REGISTERS_64                                        \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75" \
  ", %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87" \
  ", %88, %89, %90, %91, %92, %93, %94, %95"
#define LORA_BENCH_SUMS_8(i)                                                                  \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define LORA_BENCH_SUMS_12 LORA_BENCH_SUMS_8(0), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define LORA_BENCH_SUMS_16 LORA_BENCH_SUMS_8(0), LORA_BENCH_SUMS_8(8)
#define LORA_BENCH_SUMS_24 LORA_BENCH_SUMS_8(0), LORA_BENCH_SUMS_8(8), LORA_BENCH_SUMS_8(16)
#define LORA_BENCH_SUMS_48 \
  LORA_BENCH_SUMS_24, LORA_BENCH_SUMS_8(24), LORA_BENCH_SUMS_8(32), LORA_BENCH_SUMS_8(40)
#define LORA_BENCH_SUMS_64 LORA_BENCH_SUMS_48, LORA_BENCH_SUMS_8(48), LORA_BENCH_SUMS_8(56)
#define LORA_BENCH_SUMS_96                                                                 \
  LORA_BENCH_SUMS_64, LORA_BENCH_SUMS_8(64), LORA_BENCH_SUMS_8(72), LORA_BENCH_SUMS_8(80), \
      LORA_BENCH_SUMS_8(88)
#define LORA_BENCH_PRODUCT(lanes, sums, type, x_at, a_at, add_at)                              \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #add_at                                    \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #lanes "k16.f32." type                \
               " {" LORA_BENCH_REGISTERS_##sums "}, %" #x_at ", %" #a_at ", p, 1, 1, 0, 0;\n}" \
               : LORA_BENCH_SUMS_##sums                                                        \
               : "l"(x), "l"(a), "r"(static_cast<int>(add)))

// Sum c of eight lanes is row lane / 4 + 8 * (c / 2) of the warp's 16, lane 2 * (lane % 4) + c % 2.
// Without `add` sums begin at 0.
template <typename T, int kLanes>
__device__ inline void multiply_lanes(float (&d)[kLanes / 2], std::uint64_t x, std::uint64_t a,
                                      bool add) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (std::is_same_v<T, __half>) {
    if constexpr (kLanes == 24) {
      LORA_BENCH_PRODUCT(24, 12, "f16.f16", 12, 13, 14);
    } else if constexpr (kLanes == 32) {
      LORA_BENCH_PRODUCT(32, 16, "f16.f16", 16, 17, 18);
    } else if constexpr (kLanes == 48) {
      LORA_BENCH_PRODUCT(48, 24, "f16.f16", 24, 25, 26);
    } else if constexpr (kLanes == 96) {
      LORA_BENCH_PRODUCT(96, 48, "f16.f16", 48, 49, 50);
    } else if constexpr (kLanes == 128) {
      LORA_BENCH_PRODUCT(128, 64, "f16.f16", 64, 65, 66);
    } else {
      static_assert(kLanes == 192);
      LORA_BENCH_PRODUCT(192, 96, "f16.f16", 96, 97, 98);
    }
  } else {
    if constexpr (kLanes == 24) {
      LORA_BENCH_PRODUCT(24, 12, "bf16.bf16", 12, 13, 14);
    } else if constexpr (kLanes == 32) {
      LORA_BENCH_PRODUCT(32, 16, "bf16.bf16", 16, 17, 18);
    } else if constexpr (kLanes == 48) {
      LORA_BENCH_PRODUCT(48, 24, "bf16.bf16", 24, 25, 26);
    } else if constexpr (kLanes == 96) {
      LORA_BENCH_PRODUCT(96, 48, "bf16.bf16", 48, 49, 50);
    } else if constexpr (kLanes == 128) {
      LORA_BENCH_PRODUCT(128, 64, "bf16.bf16", 64, 65, 66);
    } else {
      static_assert(kLanes == 192);
      LORA_BENCH_PRODUCT(192, 96, "bf16.bf16", 96, 97, 98);
    }
  }
#else
  __trap();  // the host asks for groups on sm_90a alone
#endif
}

#undef LORA_BENCH_PRODUCT
#undef LORA_BENCH_SUMS_96
#undef LORA_BENCH_SUMS_64
#undef LORA_BENCH_SUMS_48
#undef LORA_BENCH_SUMS_24
#undef LORA_BENCH_SUMS_16
#undef LORA_BENCH_SUMS_12
#undef LORA_BENCH_SUMS_8
#undef LORA_BENCH_REGISTERS_96
#undef LORA_BENCH_REGISTERS_64
#undef LORA_BENCH_REGISTERS_48
#undef LORA_BENCH_REGISTERS_24
#undef LORA_BENCH_REGISTERS_16
#undef LORA_BENCH_REGISTERS_12

}  // namespace lora_bench::kernels
