#pragma once

#include <span>
#include <string>

namespace lora_bench {

// 64 hexadecimal digits, as sha256sum prints them.
[[nodiscard]] std::string sha256(std::span<const char> bytes);

}  // namespace lora_bench
