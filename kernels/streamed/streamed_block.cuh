#pragma once

#include "kernels/asynchronous.cuh"
#include "kernels/streamed/streamed.h"
#include "kernels/streamed/streamed_hidden.cuh"

// What the warps of a block share: shared memory, barriers, and which part of W is the block's.
namespace lora_bench::kernels {

constexpr int kMultiplyWarps = 8;
constexpr int kFinishWarps = 2;
constexpr int kCopyWarp = kMultiplyWarps + kFinishWarps;
constexpr int kBaseWarps = kCopyWarp + 1;
constexpr int kUnitRows = static_cast<int>(kStreamedRows);
constexpr int kGroupColumns = static_cast<int>(kStreamedGroup);
constexpr int kStageColumns = 1024;  // copies of 2 KB: of half of that they are a tenth slower
constexpr int kPitch =
    kStageColumns * 2 + 64;  // rows that a quarter of a warp reads lie in other banks
constexpr int kStageBytes = kUnitRows * kPitch;
constexpr int kStages = 3;
constexpr int kUnderWay = 2;      // stages, once the ring was full: with more, memory is slower
constexpr int kMostTogether = 2;  // units that share what is read of x
constexpr int kGroupsEach = kStageColumns / kGroupColumns / kMultiplyWarps;  // of a warp in a stage
constexpr int kSums = kUnitRows * static_cast<int>(kStreamedMostTokens);  // of one warp in a unit
constexpr int kKept = 8;                                                  // units that wait for h
constexpr int kSumsAt = kStages * kStageBytes;  // of two units, of every warp
constexpr int kKeptAt = kSumsAt + 2 * kMultiplyWarps * kSums * 4;
constexpr int kBarriersAt = kKeptAt + kKept * kSums * 4;
constexpr int kHiddenAt = kBarriersAt + 128;  // as much as the adapters need
constexpr int kTurnAt = kBarriersAt + 120;
static_assert((2 * kStages + 6) * 8 <= kTurnAt - kBarriersAt);
static_assert(kUnderWay <= kStages);

// Barriers, in the order in which they lie.
struct StreamedBarriers {
  std::uint32_t full, empty;            // of each stage
  std::uint32_t sums_full, sums_empty;  // of each of two units
  std::uint32_t hidden_full, turn_known;
  __device__ explicit StreamedBarriers(unsigned char* shared)
      : full(shared_address(shared + kBarriersAt)),
        empty(full + kStages * 8),
        sums_full(empty + kStages * 8),
        sums_empty(sums_full + 16),
        hidden_full(sums_empty + 16),
        turn_known(hidden_full + 8) {}
  __device__ void begin() const {
    for (int stage = 0; stage < kStages; ++stage) {
      begin_barrier(full + stage * 8);
      begin_barrier(empty + stage * 8, kMultiplyWarps);
    }
    for (int unit = 0; unit < 2; ++unit) {
      begin_barrier(sums_full + unit * 8, kMultiplyWarps);
      begin_barrier(sums_empty + unit * 8, kFinishWarps);
    }
    begin_barrier(hidden_full, 32 * kHiddenWarps);
    begin_barrier(turn_known, 1);
    publish_barriers();
  }
};

// Blocks begin a unit at different columns, so that not all read the same part of a row at once.
struct StreamedColumns {
  int depth, first;
  __device__ explicit StreamedColumns(std::int64_t all) : depth(static_cast<int>(all)) {
    const int chunks = (depth + kStageColumns - 1) / kStageColumns;
    first = static_cast<int>(blockIdx.x) % chunks * kStageColumns;
  }
  [[nodiscard]] __device__ int after(int column) const {
    return column + kStageColumns < depth ? column + kStageColumns : 0;
  }
};

// Of the units of 16 rows of W, those of this block: as many as any other has, or one less.
struct StreamedShare {
  int first, last;
};
__device__ inline StreamedShare own_share(int units) {
  const auto at = [&](unsigned block) {
    return static_cast<int>(static_cast<std::int64_t>(block) * units / gridDim.x);
  };
  return {at(blockIdx.x), at(blockIdx.x + 1)};
}

// Whether the phase of that parity has ended.
__device__ inline bool has_ended(std::uint32_t barrier, unsigned parity) {
  std::uint32_t ended = 0;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}

}  // namespace lora_bench::kernels
