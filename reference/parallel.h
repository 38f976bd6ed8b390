#pragma once

#include <cstdint>
#include <functional>

namespace lora_bench::reference {

// Calls work(0) ... work(parts - 1), each once, on at most `threads` threads; returns when all are
// done. The first exception is thrown again here.
void parallel(std::int64_t parts, std::int64_t threads,
              const std::function<void(std::int64_t)>& work);

[[nodiscard]] std::int64_t available_threads();

}  // namespace lora_bench::reference
