#pragma once

namespace lora_bench {

// Seconds that a fixed piece of work takes on the cores of this process now: arithmetic, reading of
// memory that no cache holds, and short loops that wake all threads. It is the same whatever is
// measured, so two runs in which it differs were made on a machine that had changed. Takes about
// 20 ms.
[[nodiscard]] double yardstick_seconds();

}  // namespace lora_bench
