#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace lora_bench::kernels {

// -1 where the row has no adapter.
__device__ inline std::int32_t slot_of(const EngineParams& engine, std::int64_t row) {
  const std::int32_t request = engine.request_of_row[row];
  if (request < 0 || request >= engine.requests) {
    return -1;
  }
  const std::int32_t slot =
      engine.slot_of_request != nullptr ? engine.slot_of_request[request] : request;
  return slot >= 0 && slot < engine.slots ? slot : -1;
}

}  // namespace lora_bench::kernels
