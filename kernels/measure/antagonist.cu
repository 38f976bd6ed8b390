#include "kernels/measure/probes.h"

namespace lora_bench::kernels {
namespace {

__device__ unsigned mixed_bits(unsigned value) {
  value ^= value >> 16;
  value *= 0x7FEB352DU;
  value ^= value >> 15;
  value *= 0x846CA68BU;
  return value ^ (value >> 16);
}

// A block waits for memory once a round: where the next round reads follows from what this one
// read. `turn` moves on as blocks end, so that no two launches divide the device alike. Bound: the
// latency of memory, at most `most_rounds` times.
__global__ void antagonist(const unsigned* __restrict__ data, std::int64_t words, unsigned* turn,
                           unsigned* sink, unsigned most_rounds) {
  const unsigned drawn = mixed_bits(*static_cast<volatile unsigned*>(turn) * 65537U + blockIdx.x);
  unsigned at = mixed_bits(drawn + threadIdx.x);
  for (unsigned round = 0; round < drawn % most_rounds; ++round) {
    at = mixed_bits(at + __ldcg(data + at % static_cast<std::uint64_t>(words)));
  }
  if (at == 0x5EED1E55U) {
    *sink = at;
  }
  if (threadIdx.x == 0) {
    atomicAdd(turn, 1U);
  }
}

}  // namespace

cudaError_t launch_antagonist(const void* data, std::int64_t bytes, unsigned* turn, unsigned* sink,
                              int most_rounds, ProbeGrid grid, cudaStream_t stream) {
  if (bytes < 4 || most_rounds < 1) {
    return cudaErrorInvalidValue;
  }
  antagonist<<<grid.blocks, grid.threads_per_block, 0, stream>>>(
      static_cast<const unsigned*>(data), bytes / 4, turn, sink,
      static_cast<unsigned>(most_rounds));
  return cudaGetLastError();
}

}  // namespace lora_bench::kernels
