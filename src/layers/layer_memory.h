#pragma once

#include <cstdint>

#include "core/dtype.h"

// How the engine lays out what it holds.
namespace lora_bench {

inline std::int64_t bytes_of(Dtype dtype, std::int64_t elements) {
  return elements * size_bytes(dtype);
}

inline void* advance(void* address, std::int64_t bytes) {
  return address == nullptr ? nullptr : static_cast<char*>(address) + bytes;
}

}  // namespace lora_bench
