#pragma once

#include <cstdint>
#include <functional>

namespace lora_bench {

// Calls `work(begin, end)` for blocks that cover 0 .. count - 1, each once, on at most `threads`
// threads (0 = all cores), the caller's among them; returns when all are done. What one throws is
// thrown here.
void for_blocks(std::int64_t count, std::int64_t per_block, int threads,
                const std::function<void(std::int64_t begin, std::int64_t end)>& work);

}  // namespace lora_bench
