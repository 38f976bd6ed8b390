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

}  // namespace lora_bench
