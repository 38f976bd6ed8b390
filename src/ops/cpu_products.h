#pragma once

#include "ops/backend.h"
#include "ops/cpu_kernels.h"
#include "ops/cpu_schedule.h"

namespace lora_bench {

// One launch as its items see it.
struct CpuLaunch {
  const Problem& problem;
  const Operands& operands;
  const CpuKernels& kernels;
  const CpuSlices& slices;
};

[[nodiscard]] inline const void* element(Dtype dtype, const void* from, std::int64_t index) {
  return static_cast<const char*>(from) + index * size_bytes(dtype);
}

// h of the rows and lanes of the item.
void shrink_item(const CpuLaunch& launch, const CpuItem& item);
// y of the rows and columns of the item.
void expand_item(const CpuLaunch& launch, const CpuItem& item);

}  // namespace lora_bench
