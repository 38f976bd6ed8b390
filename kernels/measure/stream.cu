#include "kernels/link.cuh"
#include "kernels/measure/probes.h"

namespace lora_bench::kernels {
namespace {

// 16-byte loads that each thread has under way before it uses the first.
constexpr int kInFlight = 8;

__global__ void empty() {
  let_next_kernel_start();
  await_previous_kernel();
}

// Neighbouring threads read neighbouring vectors; a thread's loads are a grid apart, so that all
// memory channels are busy from the first wave. Bound: memory.
__global__ void read_stream(const uint4* __restrict__ data, std::int64_t vectors, unsigned* sink,
                            bool early) {
  let_next_kernel_start();
  if (!early) {
    await_previous_kernel();
  }
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  unsigned mixed = 0;
  for (; i + (kInFlight - 1) * threads < vectors; i += kInFlight * threads) {
    uint4 loaded[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      loaded[j] = data[i + j * threads];
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      mixed ^= loaded[j].x ^ loaded[j].y ^ loaded[j].z ^ loaded[j].w;
    }
  }
  for (; i < vectors; i += threads) {
    const uint4 loaded = data[i];
    mixed ^= loaded.x ^ loaded.y ^ loaded.z ^ loaded.w;
  }
  if (mixed == 0x5EED1E55U) {
    *sink = mixed;
  }
}

// The number of this block: that of its multiprocessor where each has one block.
__device__ unsigned place_of_block() {
  unsigned multiprocessor = 0;
  asm("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  return multiprocessor < gridDim.x ? multiprocessor : blockIdx.x;
}

// Each warp reads a tile of 4096 bytes at a time. Where a line is read by other multiprocessors
// than before, a cache of two halves holds it twice. Bound: L2 and memory.
__global__ void __launch_bounds__(1024)
    read_again(const uint4* __restrict__ data, std::int64_t tiles, std::int64_t kept_tiles,
               bool backwards, unsigned* sink) {
  constexpr int kLanes = 32;
  const std::int64_t warps = std::int64_t{gridDim.x} * blockDim.x / kLanes;
  const std::int64_t first = (std::int64_t{place_of_block()} * blockDim.x + threadIdx.x) / kLanes;
  const std::int64_t turns = first < tiles ? (tiles - 1 - first) / warps + 1 : 0;
  unsigned mixed = 0;
  for (std::int64_t step = 0; step < turns; ++step) {
    const std::int64_t tile = first + (backwards ? turns - 1 - step : step) * warps;
    const uint4* from = data + tile * kLanes * kInFlight + threadIdx.x % kLanes;
    uint4 loaded[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      loaded[j] = tile < kept_tiles ? from[j * kLanes] : __ldcs(from + j * kLanes);
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      mixed ^= loaded[j].x ^ loaded[j].y ^ loaded[j].z ^ loaded[j].w;
    }
  }
  if (mixed == 0x5EED1E55U) {
    *sink = mixed;
  }
}

// As read_stream, but each vector is written back with its sign bits turned. Bound: memory or L2.
__global__ void update_stream(uint4* data, std::int64_t vectors) {
  let_next_kernel_start();
  await_previous_kernel();
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  constexpr unsigned kSigns = 0x80008000U;
  for (; i + (kInFlight - 1) * threads < vectors; i += kInFlight * threads) {
    uint4 loaded[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      loaded[j] = data[i + j * threads];
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      data[i + j * threads] = make_uint4(loaded[j].x ^ kSigns, loaded[j].y ^ kSigns,
                                         loaded[j].z ^ kSigns, loaded[j].w ^ kSigns);
    }
  }
  for (; i < vectors; i += threads) {
    const uint4 loaded = data[i];
    data[i] =
        make_uint4(loaded.x ^ kSigns, loaded.y ^ kSigns, loaded.z ^ kSigns, loaded.w ^ kSigns);
  }
}

__global__ void copy(uint4* __restrict__ to, const uint4* __restrict__ from, std::int64_t vectors) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + (kInFlight - 1) * threads < vectors; i += kInFlight * threads) {
    uint4 loaded[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      loaded[j] = from[i + j * threads];
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      to[i + j * threads] = loaded[j];
    }
  }
  for (; i < vectors; i += threads) {
    to[i] = from[i];
  }
}

__device__ unsigned mixed_bits(std::uint64_t value) {
  value ^= value >> 33;
  value *= 0xFF51AFD7ED558CCDULL;
  value ^= value >> 33;
  value *= 0xC4CEB9FE1A85EC53ULL;
  value ^= value >> 33;
  return static_cast<unsigned>(value);
}

__global__ void fill_random(unsigned* data, std::int64_t words, unsigned seed) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i < words; i += threads) {
    // The two high exponent bits of both halves differ: no NaN, no infinity, in any reading.
    const unsigned bits = mixed_bits((std::uint64_t{seed} << 40) + static_cast<std::uint64_t>(i));
    data[i] = (bits & 0xBFFFBFFFU) | 0x20002000U;
  }
}

}  // namespace

namespace {

// Code for older architectures waits for nothing, so it must not start early.
template <typename Kernel, typename... Arguments>
cudaError_t launch_started(Kernel* kernel, ProbeGrid grid, Start start, cudaStream_t stream,
                           Arguments... arguments) {
  cudaFuncAttributes code = {};
  if (const cudaError_t error = cudaFuncGetAttributes(&code, kernel); error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute link = {};
  link.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  link.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid.blocks);
  config.blockDim = dim3(grid.threads_per_block);
  config.stream = stream;
  config.attrs = &link;
  config.numAttrs = start != Start::kApart && code.ptxVersion >= 90 ? 1U : 0U;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

cudaError_t launch_empty(Start start, cudaStream_t stream) {
  return launch_started(empty, {1, 32}, start, stream);
}

cudaError_t launch_read_stream(const void* data, std::int64_t bytes, unsigned* sink, ProbeGrid grid,
                               Start start, cudaStream_t stream) {
  return launch_started(read_stream, grid, start, stream, static_cast<const uint4*>(data),
                        bytes / 16, sink, start == Start::kEarly);
}

cudaError_t launch_read_again(const void* data, std::int64_t bytes, std::int64_t kept_bytes,
                              bool backwards, unsigned* sink, cudaStream_t stream) {
  constexpr std::int64_t kTileBytes = 4096;
  int device = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  const auto ask = [&](cudaDeviceAttr what, int& value) {
    error = error == cudaSuccess ? cudaDeviceGetAttribute(&value, what, device) : error;
  };
  ask(cudaDevAttrMultiProcessorCount, multiprocessors);
  ask(cudaDevAttrMaxSharedMemoryPerBlockOptin, shared_bytes);
  if (error == cudaSuccess) {  // all of the shared memory: no second block finds room beside it
    error =
        cudaFuncSetAttribute(read_again, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  }
  if (error != cudaSuccess) {
    return error;
  }
  read_again<<<static_cast<unsigned>(multiprocessors), 1024, static_cast<std::size_t>(shared_bytes),
               stream>>>(static_cast<const uint4*>(data), bytes / kTileBytes,
                         kept_bytes / kTileBytes, backwards, sink);
  return cudaGetLastError();
}

cudaError_t launch_update_stream(void* data, std::int64_t bytes, ProbeGrid grid, Start start,
                                 cudaStream_t stream) {
  return launch_started(update_stream, grid, start, stream, static_cast<uint4*>(data), bytes / 16);
}

cudaError_t launch_copy(void* to, const void* from, std::int64_t bytes, ProbeGrid grid,
                        cudaStream_t stream) {
  copy<<<grid.blocks, grid.threads_per_block, 0, stream>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), bytes / 16);
  return cudaGetLastError();
}

cudaError_t launch_fill_random(void* data, std::int64_t bytes, unsigned seed, ProbeGrid grid,
                               cudaStream_t stream) {
  fill_random<<<grid.blocks, grid.threads_per_block, 0, stream>>>(static_cast<unsigned*>(data),
                                                                  bytes / 4, seed);
  return cudaGetLastError();
}

}  // namespace lora_bench::kernels
