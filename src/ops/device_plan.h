#pragma once

#include <cstdint>
#include <memory>

#include "ops/backend.h"

namespace lora_bench {

// A plan (plan/plan.h) in the memory of a GPU, padded to the slots so that launches that read it
// keep their shape. All but the ids is written.
struct DevicePlan {
  const std::int32_t* adapter_of_token = nullptr;  // [tokens]
  std::int32_t* token_order = nullptr;             // [tokens]
  std::int32_t* active_ids = nullptr;              // [slots + 1], -1 after the active ones
  std::int32_t* group_starts = nullptr;            // [slots + 2], then where the last group ends
  std::int32_t* counts = nullptr;                  // [slots + 1], 0 after the active ones
  std::int32_t* active = nullptr;                  // [1]
};

// What a captured launch is good for: any ids, any number of tokens up to `most_tokens`.
struct DevicePlanShape {
  std::int64_t most_tokens = 0;
  std::int64_t slots = 0;
  int compute_capability = 0;  // of DeviceFacts
};

// No for more tokens than 32-bit indices hold, or more slots than shared memory has room for.
[[nodiscard]] Support device_plan_takes(const DevicePlanShape& shape);

// One kernel on the stream; nothing waits for it. The arrays hold the same as make_plan makes of
// the ids; ids outside -1 .. slots - 1, which make_plan refuses, count as -1. Throws CaseError
// for what is not taken, EnvironmentError where there is no GPU.
void launch_device_plan(const DevicePlan& plan, std::int64_t tokens, const DevicePlanShape& shape,
                        Stream stream);

// The same backend, whose every launch first makes the plan from the adapters of the rows and then
// runs on that one alone. Of a backend of the host it supports nothing.
[[nodiscard]] std::shared_ptr<const Backend> with_device_plan(
    std::shared_ptr<const Backend> backend);

}  // namespace lora_bench
