#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "layers/layer_problem.h"

// How the engine lays out what it holds.
namespace lora_bench {

inline std::int64_t bytes_of(Dtype dtype, std::int64_t elements) {
  return elements * size_bytes(dtype);
}

inline void* advance(void* address, std::int64_t bytes) {
  return address == nullptr ? nullptr : static_cast<char*>(address) + bytes;
}

// Whether the bias is added to a product in fp32 that ends before.
inline bool adds_bias_after(const ShardProblem& problem) {
  return problem.adds_bias && !problem.base.bias;
}

}  // namespace lora_bench
