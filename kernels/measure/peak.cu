#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/measure/probes.h"

// Multiply-adds with operands in registers and shared memory. Bound: the arithmetic units.
namespace lora_bench::kernels {
namespace {

constexpr int kWarpsPerGroup = 4;
constexpr int kChains = 8;  // independent sums of a thread or a warp, to cover the latency
constexpr int kFmaPerRound = 64;
constexpr int kWgmmaPerRound = 8;
constexpr int kWgmmaColumns = 128;

// Full-mantissa bits below 1 in bf16 and in fp16: constant operands would draw less power.
__device__ unsigned operand_bits(unsigned index) {
  return ((index * 2654435761U + threadIdx.x * 40503U) & 0x8FFF8FFFU) | 0x30003000U;
}

template <typename T>
__device__ void mma(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
template <>
__device__ void mma<__nv_bfloat16>(float (&sum)[4], const unsigned (&a)[4],
                                   const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ void mma<__half>(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void peak_fma(int rounds, float* sink) {
  float sum[kChains];
  for (int chain = 0; chain < kChains; ++chain) {
    sum[chain] = static_cast<float>(threadIdx.x + chain) * 0.37F;
  }
  const float factor = 0.999F + static_cast<float>(threadIdx.x) * 1e-6F;
  const float addend = static_cast<float>(blockIdx.x) * 1e-3F;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int step = 0; step < kFmaPerRound / kChains; ++step) {
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) {
        sum[chain] = fmaf(sum[chain], factor, addend);
      }
    }
  }
  float total = 0;
  for (const float value : sum) {
    total += value;
  }
  if (total == 0.123F) {
    *sink = total;
  }
}

template <typename T>
__global__ void peak_mma(int rounds, float* sink) {
  float sum[kChains][4] = {};
  const unsigned a[4] = {operand_bits(1), operand_bits(2), operand_bits(3), operand_bits(4)};
  const unsigned b[2] = {operand_bits(5), operand_bits(6)};
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) {
      mma<T>(sum[chain], a, b);
    }
  }
  float total = 0;
  for (const auto& chain : sum) {
    for (const float value : chain) {
      total += value;
    }
  }
  if (total == 0.123F) {
    *sink = total;
  }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr int kWgmmaSums = 64;
constexpr int kWgmmaDepth = 64;  // of the tile of B in shared memory, 128 bytes

template <typename T>
__device__ void wgmma(float (&sum)[kWgmmaSums], const unsigned (&a)[4], std::uint64_t b);
template <>
__device__ void wgmma<__nv_bfloat16>(float (&sum)[kWgmmaSums], const unsigned (&a)[4],
                                     std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
        "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),
        "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
        "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),
        "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
        "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]),
        "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),
        "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]),
        "+f"(sum[48]), "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]),
        "+f"(sum[54]), "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]),
        "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <>
__device__ void wgmma<__half>(float (&sum)[kWgmmaSums], const unsigned (&a)[4], std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
        "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),
        "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
        "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),
        "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
        "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]),
        "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),
        "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]),
        "+f"(sum[48]), "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]),
        "+f"(sum[54]), "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]),
        "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Where the hardware finds a tile of B: 128-byte rows, swizzled by 128 bytes, eight rows every
// 1024 bytes.
__device__ std::uint64_t describe_tile(const void* shared) {
  const std::uint64_t address = __cvta_generic_to_shared(shared);
  constexpr std::uint64_t kBetweenEightRows = 1024 >> 4;
  constexpr std::uint64_t kSwizzle128 = 1;
  return ((address & 0x3FFFF) >> 4) | (std::uint64_t{1} << 16) | (kBetweenEightRows << 32) |
         (kSwizzle128 << 62);
}
#endif

// Warp groups multiply A from registers with a tile of B in shared memory that is never refilled.
// The fence makes the fill visible to the tensor cores' own path; the wait ends each round before
// the sums may be touched again.
template <typename T>
__global__ void peak_wgmma(int rounds, float* sink) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ alignas(1024) unsigned tile[kWgmmaColumns * kWgmmaDepth / 2];
  for (unsigned i = threadIdx.x; i < kWgmmaColumns * kWgmmaDepth / 2; i += blockDim.x) {
    tile[i] = operand_bits(i);
  }
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const std::uint64_t b = describe_tile(tile);
  const unsigned a[4] = {operand_bits(1), operand_bits(2), operand_bits(3), operand_bits(4)};
  float sum[kWgmmaSums] = {};
  for (int round = 0; round < rounds; ++round) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < kWgmmaPerRound; ++step) {
      constexpr std::uint64_t kStepBytes = 32;  // 16 elements along K
      wgmma<T>(sum, a, b + (step % 4) * (kStepBytes >> 4));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float total = 0;
  for (const float value : sum) {
    total += value;
  }
  if (total == 0.123F) {
    *sink = total;
  }
#else
  static_cast<void>(rounds);
  static_cast<void>(sink);
#endif
}

// wgmma is code of 90a alone, whatever the device: without it in this build the kernel would be
// empty, and its time no peak.
bool has_wgmma(int compute_capability) {
#ifdef LORA_BENCH_HAVE_SM90A
  return compute_capability == 90;
#else
  static_cast<void>(compute_capability);
  return false;
#endif
}

template <typename T>
cudaError_t launch_tensor_peak(bool warp_groups, int rounds, float* sink, ProbeGrid grid,
                               cudaStream_t stream) {
  if (warp_groups) {
    peak_wgmma<T><<<grid.blocks, grid.threads_per_block, 0, stream>>>(rounds, sink);
  } else {
    peak_mma<T><<<grid.blocks, grid.threads_per_block, 0, stream>>>(rounds, sink);
  }
  return cudaGetLastError();
}

}  // namespace

PeakProbe peak_probe(Number number, int compute_capability) {
  if (number == Number::kFp32) {
    return {"fma", 2.0 * 32 * kFmaPerRound};
  }
  if (has_wgmma(compute_capability)) {
    return {"wgmma", 2.0 * 64 * kWgmmaColumns * 16 * kWgmmaPerRound / kWarpsPerGroup};
  }
  return {"mma.sync", 2.0 * 16 * 8 * 16 * kChains};
}

cudaError_t launch_peak(Number number, int compute_capability, int rounds, float* sink,
                        ProbeGrid grid, cudaStream_t stream) {
  const bool warp_groups = has_wgmma(compute_capability);
  if (warp_groups && grid.threads_per_block % 128 != 0) {
    return cudaErrorInvalidConfiguration;
  }
  switch (number) {
    case Number::kFp32:
      peak_fma<<<grid.blocks, grid.threads_per_block, 0, stream>>>(rounds, sink);
      return cudaGetLastError();
    case Number::kBf16:
      return launch_tensor_peak<__nv_bfloat16>(warp_groups, rounds, sink, grid, stream);
    case Number::kFp16:
      return launch_tensor_peak<__half>(warp_groups, rounds, sink, grid, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace lora_bench::kernels
