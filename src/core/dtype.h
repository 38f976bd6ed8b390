#pragma once

#include <cstdint>

#include "core/named.h"

namespace lora_bench {

// Storage types of operands. kE4m3 and kE5m2 have converters but no op yet.
enum class Dtype : std::uint8_t { kFp32, kBf16, kFp16, kE4m3, kE5m2 };
template <>
struct EnumNames<Dtype> {
  static constexpr std::array<std::string_view, 5> kNames{"fp32", "bf16", "fp16", "e4m3", "e5m2"};
};

[[nodiscard]] std::int64_t size_bytes(Dtype dtype);

// Half the distance between neighbours at 1.0: the largest relative error of one rounding.
[[nodiscard]] double unit_roundoff(Dtype dtype);

}  // namespace lora_bench
