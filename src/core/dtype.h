#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/named.h"

namespace lora_bench {

// Storage types of operands; those in kE4m3 or kE5m2 have scales.
enum class Dtype : std::uint8_t { kFp32, kBf16, kFp16, kE4m3, kE5m2 };
template <>
struct EnumNames<Dtype> {
  static constexpr std::array<std::string_view, 5> kNames{"fp32", "bf16", "fp16", "e4m3", "e5m2"};
};

[[nodiscard]] constexpr bool is_eight_bits(Dtype dtype) {
  return dtype == Dtype::kE4m3 || dtype == Dtype::kE5m2;
}

[[nodiscard]] std::int64_t size_bytes(Dtype dtype);

[[nodiscard]] double largest_finite(Dtype dtype);

// Half the distance between neighbours at 1.0: the largest relative error of one rounding.
[[nodiscard]] double unit_roundoff(Dtype dtype);

// fp32 -> narrow, round to nearest even; NaN stays NaN (quiet). bf16 and fp16 overflow to infinity.
// e4m3 follows the OCP "fn" form: no infinity, overflow and infinity become NaN, largest 448.
// e5m2 is IEEE-like: overflow to infinity.
[[nodiscard]] std::uint16_t bf16_from_float(float value);
[[nodiscard]] std::uint16_t fp16_from_float(float value);
[[nodiscard]] std::uint8_t e4m3_from_float(float value);
[[nodiscard]] std::uint8_t e5m2_from_float(float value);

// Significant bits of a normal number.
constexpr int kBitsOfFp16 = 11;
constexpr int kBitsOfBf16 = 8;
// To so many significant bits, ties to even, whatever the exponent.
[[nodiscard]] float rounded_to_bits(float value, int bits);

[[nodiscard]] float float_from_bf16(std::uint16_t bits);
[[nodiscard]] float float_from_fp16(std::uint16_t bits);
[[nodiscard]] float float_from_e4m3(std::uint8_t bits);
[[nodiscard]] float float_from_e5m2(std::uint8_t bits);

// One element of an array of `dtype`; `index` counts elements.
[[nodiscard]] float load(Dtype dtype, const void* data, std::int64_t index);
void store(Dtype dtype, void* data, std::int64_t index, float value);

// Whole arrays; `out` must hold in.size() elements.
void encode(Dtype dtype, std::span<const float> in, void* out);
void decode(Dtype dtype, const void* in, std::span<float> out);

}  // namespace lora_bench
