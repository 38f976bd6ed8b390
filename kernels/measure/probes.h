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

// How a launch begins beside the launch before it: after its end; on its way while that one ends,
// though it touches nothing before the end; or touching its operands at once, as a kernel may with
// what no launch before it writes.
enum class Start : std::uint8_t { kApart, kLinked, kEarly };

// Does nothing: what is left is the cost of a launch. A launch that updates what the one before
// wrote is `launch_update_stream` of a few bytes.
[[nodiscard]] cudaError_t launch_empty(Start start, cudaStream_t stream);

// Reads [data, data + bytes) once. `sink` (one word) is written only if the exclusive or of all
// that a thread read happens to be one odd value, which keeps the loads from being dropped.
[[nodiscard]] cudaError_t launch_read_stream(const void* data, std::int64_t bytes, unsigned* sink,
                                             ProbeGrid grid, Start start, cudaStream_t stream);

// Reads [data, data + bytes) once as a launch should that reads what the launch before read: a
// block on each multiprocessor, which reads the same part each time, `backwards` in every second
// launch; only the first `kept_bytes` are meant to stay in the cache. `bytes` is a multiple of
// 4096.
[[nodiscard]] cudaError_t launch_read_again(const void* data, std::int64_t bytes,
                                            std::int64_t kept_bytes, bool backwards, unsigned* sink,
                                            cudaStream_t stream);

// Reads [data, data + bytes) and writes other bits back in place.
[[nodiscard]] cudaError_t launch_update_stream(void* data, std::int64_t bytes, ProbeGrid grid,
                                               Start start, cudaStream_t stream);

// to[i] = from[i].
[[nodiscard]] cudaError_t launch_copy(void* to, const void* from, std::int64_t bytes,
                                      ProbeGrid grid, cudaStream_t stream);

// Vectors that a warp of `launch_touch` touches at once. They have the most bytes, up to 16, that
// divide all sizes and strides.
inline constexpr std::int64_t kTouchTileVectors = 256;

// The operands of one step, in bytes, as `launch_touch` takes them.
struct TouchParams {
  // A, B or bias of one slice, of which the active slots are touched.
  struct Part {
    const void* data = nullptr;
    std::int64_t slot_bytes = 0;  // allocated for one slot, below 4 GiB
    std::int64_t lane_bytes = 0;  // of a slot what each lane of its rank takes; 0: it has no lanes
    std::int64_t period_bytes = 0;  // lanes of B lie together in each row of so many bytes; 0: once
  };
  // Of the rows that have an adapter.
  struct Rows {
    void* data = nullptr;
    std::int64_t row_bytes = 0;     // at most, of one row; below 4 GiB
    std::int64_t stride_bytes = 0;  // from one row to the next
    std::int64_t lane_bytes = 0;    // of an h, whose row is as long as the rank; 0: all of the row
    bool reads = false, writes = false;
  };
  Part part[3 * kMaxSlices];
  Rows rows[2 + kMaxSlices];
  int parts = 0, operands = 0;
  const std::int32_t* adapter_of_token = nullptr;
  const std::int32_t* token_order = nullptr;
  const std::int32_t* active_ids = nullptr;
  const std::int32_t* group_starts = nullptr;
  const std::int32_t* rank = nullptr;
  std::int64_t uniform_rank = 0;  // of all active slots; 0: they differ
  std::int64_t tokens = 0;
  std::int32_t active = 0;
  bool backwards = false;    // each warp through its tiles
  unsigned* sink = nullptr;  // one word, seldom written
};
static_assert(std::is_trivially_copyable_v<TouchParams> && sizeof(TouchParams) < 4096);

// Reads every operand of a step once, and reads or writes its output once: no kernel that does the
// step moves less. What it leaves in the output means nothing.
[[nodiscard]] cudaError_t launch_touch(const TouchParams& params, int multiprocessors,
                                       cudaStream_t stream);

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

// Spins for so many clocks of a multiprocessor in every block and touches no memory. It takes no
// early start, and the launch after it begins when its last block has ended: it stands between
// launches of an op as the other kernels of an engine do.
[[nodiscard]] cudaError_t launch_separator(int clocks, ProbeGrid grid, cudaStream_t stream);

// Writes for each multiprocessor how many clocks it has counted and the time in ns, at its number
// in both arrays, which have one place for each. A multiprocessor that gets no block writes
// nothing.
[[nodiscard]] cudaError_t launch_mark_clocks(std::int64_t* clocks, std::int64_t* ns,
                                             unsigned multiprocessors, cudaStream_t stream);

// What `launch_copy_late` copies, byte by byte: nothing need be aligned.
struct LateCopies {
  void* to[3] = {};
  const void* from[3] = {};
  std::int64_t bytes[3] = {};
  int count = 0;
};

// Copies as late as another kernel of an engine may write: the launch after it may start early, at
// once, and nothing is written for so many clocks. Who starts early and does not wait for this
// launch finds what stood there before.
[[nodiscard]] cudaError_t launch_copy_late(const LateCopies& copies, int clocks,
                                           cudaStream_t stream);

// Work beside other work: every block reads `data` for a number of rounds that is drawn anew for
// each block and each launch, `most_rounds` at most, and then ends. `turn` (one word, any value)
// counts the blocks; `sink` as above.
[[nodiscard]] cudaError_t launch_antagonist(const void* data, std::int64_t bytes, unsigned* turn,
                                            unsigned* sink, int most_rounds, ProbeGrid grid,
                                            cudaStream_t stream);

}  // namespace lora_bench::kernels
