#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lora_bench {

// So many zeros. Large ones lie on large pages where the system has them: to touch a new buffer of
// hundreds of MB page by page takes longer than to fill it.
[[nodiscard]] std::vector<std::byte> zero_bytes(std::int64_t count);

}  // namespace lora_bench
