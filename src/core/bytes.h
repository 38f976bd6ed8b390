#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lora_bench {

// So many zeros. Large ones lie on large pages where the system has them: to touch a new buffer of
// hundreds of MB page by page takes longer than to fill it.
[[nodiscard]] std::vector<std::byte> zero_bytes(std::int64_t count);
// To so many of any value. An array that has the room takes no new memory, which takes longer to
// come by than to copy.
void resize_bytes(std::vector<std::byte>& bytes, std::int64_t count);
// On all cores where they are many.
void copy_bytes(void* to, const void* from, std::int64_t count);
// Of so many bytes each, compared on all cores where they are many.
[[nodiscard]] bool same_bytes(const void* left, const void* right, std::int64_t count);
// The same of arrays, whose == compares byte by byte.
[[nodiscard]] bool same_bytes(const std::vector<std::byte>& left,
                              const std::vector<std::byte>& right);

// Floating-point numbers of so many bytes each, with the other sign or without one.
void negate(std::span<std::byte> numbers, std::int64_t bytes_of_each);
void make_positive(std::span<std::byte> numbers, std::int64_t bytes_of_each);

// Calls `work(begin, end)` for blocks that cover 0 .. count - 1, each once, on at most `threads`
// threads (0 = all cores), the caller's among them; returns when all are done. What one throws is
// thrown here.
void for_blocks(std::int64_t count, std::int64_t per_block, int threads,
                const std::function<void(std::int64_t begin, std::int64_t end)>& work);

// 64 hexadecimal digits, as sha256sum prints them.
[[nodiscard]] std::string sha256(std::span<const char> bytes);

}  // namespace lora_bench
