#pragma once

#include <optional>

#include "device/facts.h"
#include "device/memory.h"
#include "measure/clock.h"
#include "workload/problem.h"

namespace lora_bench {

// Seconds in which the plan of the problem is built from its ids, by itself: on the device for
// device memory (ids in its cache, arrays padded to the slots), by make_plan for host memory. The
// median of several runs of many builds. Nothing where the device's builder does not take it.
// Loads slot 0 of the clock, which is to be loaded anew before it runs again.
[[nodiscard]] std::optional<double> plan_seconds(const Problem& problem, Memory& memory,
                                                 Clock& clock, const DeviceFacts& device);

}  // namespace lora_bench
