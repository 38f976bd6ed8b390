#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "ops/backend.h"

namespace lora_bench {

// Dense parts [rows, columns] in the memory of one device, and where to put what becomes of them.
struct ExchangedParts {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, columns = 0;
  std::span<void*const> parts, to;
};

// Enqueue; every target gets the sum of the parts in fp32, in their order, rounded once (it may be
// a part), or the parts side by side. Throw CaseError, EnvironmentError without CUDA.
void launch_sum(const ExchangedParts& exchanged, Stream stream);
void launch_gather(const ExchangedParts& exchanged, Stream stream);

// What a layer's adapters add, made apart from its base. Of rows `stride` elements apart, the
// columns from `first_column` on.
struct DeltaToAdd {
  Dtype dtype = Dtype::kFp32;
  std::int64_t rows = 0, stride = 0, first_column = 0, columns = 0;
  const void* delta = nullptr;
  void* y = nullptr;
  const std::int32_t* adapter_of_token = nullptr;  // [rows], -1 = none
  const std::int32_t* rank = nullptr;              // of each adapter
};
// Enqueues y += delta in fp32, rounded once; a row without an adapter, or with one of rank 0, is
// neither read nor written.
void launch_add_delta(const DeltaToAdd& added, Stream stream);

}  // namespace lora_bench
