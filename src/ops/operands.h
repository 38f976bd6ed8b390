#pragma once

#include <cstdint>
#include <vector>

namespace lora_bench {

// Addresses in the memory of the backend. A null pointer stands for an operand the op has not
// (x of expand, b of shrink, bias without bias, anything of zero elements).
struct Operands {
  const void* x = nullptr;
  std::vector<const void*> a, b, bias;  // one per slice
  void* h = nullptr;                    // input of expand and embedding, else written
  void* y = nullptr;
  void* workspace = nullptr;
  // The plan and per-slot facts as the backend sees them (host or device memory).
  const std::int32_t* adapter_of_token = nullptr;  // [M]
  const std::int32_t* token_order = nullptr;       // [M]
  const std::int32_t* active_ids = nullptr;        // [active]
  const std::int32_t* group_starts = nullptr;      // [active + 1]
  const std::int32_t* rank = nullptr;              // [slots]
  const float* scale = nullptr;                    // [slots]
};

}  // namespace lora_bench
