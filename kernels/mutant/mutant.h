#pragma once

#include <cuda_runtime_api.h>

#include "kernels/mutant/mutant_fault.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// A tile of shrink: rows x lanes, in stages of kDepth numbers of K; of expand: rows x columns, in
// stages of kLanes lanes. A warp owns a row. K is always shared by kParts blocks: fp32 addition
// commutes, so two atomics into zero give the same bits in either order.
constexpr int kMutantRows = 4;
constexpr int kMutantLanes = 16;
constexpr int kMutantDepth = 32;
constexpr int kMutantColumns = 32;
constexpr int kMutantParts = 2;

// Faults that remember keep the plan in memory of this size.
constexpr std::int64_t kMutantMostTokens = 16384;
constexpr std::int64_t kMutantMostSlots = 2048;

struct MutantLaunch {
  MutantFault fault = MutantFault::kNone;
  std::int64_t number = 0;                        // launches of this backend before
  bool records = false, recorded_before = false;  // in a graph, which has an earlier launch
  std::int64_t slots = 0;
  std::int64_t groups = 0;         // of the plan that is read: the one before, for kStalePlan
  std::int64_t largest_group = 0;  // rows, likewise
  std::int64_t base_rows = 0;      // rows without adapter
  void* x = nullptr;               // of the op, for kXAsScratch
  std::int64_t x_elements = 0, y_elements = 0;
  const float* scale = nullptr;  // [slots], whichever op applies it
  float factor = 1;              // of every sum over K; not 1 where the fault is one of sizes
};

struct MutantOps {
  bool shrink = false;
  bool expand = false;
};

// `number` is bf16 or fp16; h is fp32. `other` is a stream that does not wait for `stream`.
[[nodiscard]] cudaError_t launch_mutant(Number number, MutantOps ops, const ShrinkParams& shrink,
                                        const ExpandParams& expand, const MutantLaunch& launch,
                                        cudaStream_t stream, cudaStream_t other);

}  // namespace lora_bench::kernels
