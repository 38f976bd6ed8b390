#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lora_bench {

// Storage types of operands. kE4m3 and kE5m2 have converters but no op yet.
enum class Dtype : std::uint8_t { kFp32, kBf16, kFp16, kE4m3, kE5m2 };

[[nodiscard]] std::string_view name(Dtype dtype);
[[nodiscard]] std::optional<Dtype> parse_dtype(std::string_view text);
[[nodiscard]] std::int64_t size_bytes(Dtype dtype);

// Half the distance between neighbours at 1.0: the largest relative error of one rounding.
[[nodiscard]] double unit_roundoff(Dtype dtype);

}  // namespace lora_bench
