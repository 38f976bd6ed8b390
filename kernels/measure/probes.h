#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/params.h"

// Kernels that find out what a device can do at best, and that hold a stream while work is queued
// behind it. Addresses are 16-byte aligned; sizes are multiples of 16 bytes.
namespace lora_bench::kernels {

struct ProbeGrid {
  unsigned blocks = 1;
  unsigned threads_per_block = 256;
};

// Does nothing: what is left is the cost of a launch.
[[nodiscard]] cudaError_t launch_empty(cudaStream_t stream);

// Reads [data, data + bytes) once. `sink` (one word) is written only if the exclusive or of all
// that a thread read happens to be one odd value, which keeps the loads from being dropped.
// `linked` launches may begin before the launch before them has ended, and read when it has.
[[nodiscard]] cudaError_t launch_read_stream(const void* data, std::int64_t bytes, unsigned* sink,
                                             ProbeGrid grid, bool linked, cudaStream_t stream);

// to[i] = from[i].
[[nodiscard]] cudaError_t launch_copy(void* to, const void* from, std::int64_t bytes,
                                      ProbeGrid grid, cudaStream_t stream);

// Fills with random bits, finite and full-mantissa when read as bf16, fp16 or fp32: data of one
// value would draw less power and run at higher clocks.
[[nodiscard]] cudaError_t launch_fill_random(void* data, std::int64_t bytes, unsigned seed,
                                             ProbeGrid grid, cudaStream_t stream);

// Multiply-adds in registers (fp32) or on tensor cores (bf16, fp16) with nothing to load: what no
// matrix product of the same instructions can exceed.
struct PeakProbe {
  const char* instruction = "";     // "fma", "mma.sync", "wgmma"
  double flops_per_warp_round = 0;  // one warp, one round
};
[[nodiscard]] PeakProbe peak_probe(Number number, int compute_capability);
// threads_per_block is a multiple of 128.
[[nodiscard]] cudaError_t launch_peak(Number number, int compute_capability, int rounds,
                                      float* sink, ProbeGrid grid, cudaStream_t stream);

// Holds the stream until the host writes a non-zero value to `open`, at most `timeout_ns`; then
// writes 1 to `timed_out`. Both are host memory mapped into the device. Queue fewer than 1000
// launches behind it: at about 1024 the host blocks inside the launch and never opens the gate.
[[nodiscard]] cudaError_t launch_gate(const volatile unsigned* open, volatile unsigned* timed_out,
                                      std::uint64_t timeout_ns, cudaStream_t stream);

// Work beside other work: every block reads `data` for a number of rounds that is drawn anew for
// each block and each launch, `most_rounds` at most, and then ends. `turn` (one word, any value)
// counts the blocks; `sink` as above.
[[nodiscard]] cudaError_t launch_antagonist(const void* data, std::int64_t bytes, unsigned* turn,
                                            unsigned* sink, int most_rounds, ProbeGrid grid,
                                            cudaStream_t stream);

}  // namespace lora_bench::kernels
