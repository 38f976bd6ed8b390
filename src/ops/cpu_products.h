#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "ops/backend.h"
#include "ops/cpu_kernels.h"
#include "workload/problem.h"

namespace lora_bench {

// A rectangle of one product for one thread. How the work is cut never changes a result.
struct CpuItem {
  std::int32_t slot = 0;
  std::int64_t first_row = 0, rows = 0;        // in token_order
  std::int64_t slice = 0;                      // of an expand item
  std::int64_t first_column = 0, columns = 0;  // expand: of the slice; shrink: lanes, slice-major
                                               // over the slices that have columns
};

// What both products need to know of the slices.
struct CpuSlices {
  std::vector<std::int64_t> live;          // slices with columns
  std::vector<std::int64_t> column_start;  // [slices], in y
};
[[nodiscard]] CpuSlices cpu_slices(const Problem& problem);

// Room for fp32 numbers that a thread keeps between items; contents are lost when it grows.
class CpuScratch {
 public:
  [[nodiscard]] float* reserve(std::int64_t numbers) {
    if (numbers > size_) {
      numbers_.reset();
      size_ = 0;
      numbers_.reset(new (std::align_val_t{64}) float[static_cast<std::size_t>(numbers)]);
      size_ = numbers;
    }
    return numbers_.get();
  }

 private:
  struct Release {
    void operator()(float* numbers) const { operator delete[](numbers, std::align_val_t{64}); }
  };
  std::unique_ptr<float[], Release> numbers_;
  std::int64_t size_ = 0;
};

// One launch as its items see it.
struct CpuLaunch {
  const Problem& problem;
  const Operands& operands;
  const CpuKernels& kernels;
  const CpuSlices& slices;
};

[[nodiscard]] std::vector<CpuItem> shrink_items(const CpuLaunch& launch, int threads);
[[nodiscard]] std::vector<CpuItem> expand_items(const CpuLaunch& launch, int threads);

[[nodiscard]] inline const void* element(Dtype dtype, const void* from, std::int64_t index) {
  return static_cast<const char*>(from) + index * size_bytes(dtype);
}

// h of the rows and lanes of the item.
void shrink_item(const CpuLaunch& launch, const CpuItem& item);
// y of the rows and columns of the item.
void expand_item(const CpuLaunch& launch, const CpuItem& item);

}  // namespace lora_bench
