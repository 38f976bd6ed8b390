#include "core/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <stdexcept>

namespace lora_bench {

namespace {

struct DtypeFacts {
  std::int64_t size_bytes;
  double unit_roundoff, largest;
};

// In the order of the enumeration.
constexpr std::array<DtypeFacts, 5> kFacts{{{4, 0x1p-24, 0x1.fffffep127},
                                            {2, 0x1p-8, 0x1.fep127},
                                            {2, 0x1p-11, 65504},
                                            {1, 0x1p-4, 448},
                                            {1, 0x1p-3, 57344}}};

const DtypeFacts& facts(Dtype dtype) { return kFacts.at(static_cast<std::size_t>(dtype)); }

}  // namespace

std::int64_t size_bytes(Dtype dtype) { return facts(dtype).size_bytes; }

double largest_finite(Dtype dtype) { return facts(dtype).largest; }

double unit_roundoff(Dtype dtype) { return facts(dtype).unit_roundoff; }

namespace {

// A narrow binary format: sign, exponent, mantissa, from the top bit down.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
};
constexpr Format kFp16Format{5, 10, true};
constexpr Format kE4m3Format{4, 3, false};
constexpr Format kE5m2Format{5, 2, true};

constexpr int kFloatMantissaBits = 23;
constexpr int kFloatBias = 127;
constexpr std::uint32_t kFloatInfinity = 0x7f800000U;

template <Format kFormat>
struct Layout {
  static constexpr int kBias = (1 << (kFormat.exponent_bits - 1)) - 1;
  static constexpr int kShift = kFloatMantissaBits - kFormat.mantissa_bits;
  static constexpr int kSignBit = kFormat.exponent_bits + kFormat.mantissa_bits;
  static constexpr std::uint32_t kMagnitudeMask = (1U << kSignBit) - 1;
  static constexpr std::uint32_t kMantissaMask = (1U << kFormat.mantissa_bits) - 1;
  // The first code that is not a finite number: infinity, or the only NaN of e4m3.
  static constexpr std::uint32_t kFirstSpecial =
      kFormat.has_infinity ? kMagnitudeMask & ~kMantissaMask : kMagnitudeMask;
  static constexpr std::uint32_t kQuietBit =
      kFormat.has_infinity ? 1U << (kFormat.mantissa_bits - 1) : 0U;
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(kFloatBias - kBias);
  static constexpr std::uint32_t kSmallestNormal = (kRebias + 1) << kFloatMantissaBits;
  // A float whose last place is the smallest subnormal of the format.
  static constexpr std::uint32_t kRuler = (kRebias + 1 + kShift) << kFloatMantissaBits;
};

// All branches are computed and then selected one after another, never nested: the loops below
// vectorise, and g++ 12 miscompiles a rounding inside nested conditionals.
template <Format kFormat>
std::uint32_t narrow(float value) {
  using L = Layout<kFormat>;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t sign = (bits >> 31) << L::kSignBit;

  const std::uint32_t half_less_one = (1U << (L::kShift - 1)) - 1;
  const std::uint32_t rounded = magnitude + half_less_one + ((magnitude >> L::kShift) & 1U);
  const std::uint32_t normal = (rounded >> L::kShift) - (L::kRebias << kFormat.mantissa_bits);

  // The adder of the machine rounds to the ruler's last place, ties to even.
  const float on_ruler = std::bit_cast<float>(magnitude) + std::bit_cast<float>(L::kRuler);
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(on_ruler) - L::kRuler;

  const std::uint32_t payload = (magnitude >> L::kShift) & L::kMantissaMask;
  const std::uint32_t nan = L::kFirstSpecial | L::kQuietBit | payload;

  std::uint32_t code = normal;
  code = magnitude < L::kSmallestNormal ? subnormal : code;
  code = code > L::kFirstSpecial ? L::kFirstSpecial : code;
  code = magnitude > kFloatInfinity ? nan : code;
  return code | sign;
}

template <Format kFormat>
float widen(std::uint32_t code) {
  using L = Layout<kFormat>;
  const std::uint32_t magnitude = code & L::kMagnitudeMask;
  const std::uint32_t sign = (code >> L::kSignBit) << 31;
  const std::uint32_t shifted = magnitude << L::kShift;

  const std::uint32_t normal = shifted + (L::kRebias << kFloatMantissaBits);
  const std::uint32_t ruler_bits = L::kRuler + magnitude;
  const float subnormal = std::bit_cast<float>(ruler_bits) - std::bit_cast<float>(L::kRuler);
  const std::uint32_t special =
      kFormat.has_infinity ? kFloatInfinity | shifted : kFloatInfinity | 0x400000U;

  std::uint32_t bits = normal;
  bits = magnitude <= L::kMantissaMask ? std::bit_cast<std::uint32_t>(subnormal) : bits;
  bits = magnitude >= L::kFirstSpecial ? special : bits;
  return std::bit_cast<float>(bits | sign);
}

std::uint16_t narrow_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > kFloatInfinity ? nan : rounded);
}

float widen_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

template <typename Code, typename Narrow>
void encode_all(std::span<const float> in, void* out, Narrow narrow_one) {
  auto* codes = static_cast<Code*>(out);
  for (std::size_t i = 0; i < in.size(); ++i) {
    codes[i] = static_cast<Code>(narrow_one(in[i]));
  }
}

template <typename Code, typename Widen>
void decode_all(const void* in, std::span<float> out, Widen widen_one) {
  const auto* codes = static_cast<const Code*>(in);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = widen_one(codes[i]);
  }
}

// Of numbers of eight bits, which are few enough to be looked up.
template <const Format& kFormat>
void decode_eight_bits(const void* in, std::span<float> out) {
  static const std::array<float, 256> kNumbers = [] {
    std::array<float, 256> numbers{};
    for (std::uint32_t code = 0; code < numbers.size(); ++code) {
      numbers.at(code) = widen<kFormat>(code);
    }
    return numbers;
  }();
  decode_all<std::uint8_t>(in, out, [](auto code) { return kNumbers[code]; });
}

}  // namespace

std::uint16_t bf16_from_float(float value) { return narrow_bf16(value); }
std::uint16_t fp16_from_float(float value) {
  return static_cast<std::uint16_t>(narrow<kFp16Format>(value));
}
std::uint8_t e4m3_from_float(float value) {
  return static_cast<std::uint8_t>(narrow<kE4m3Format>(value));
}
std::uint8_t e5m2_from_float(float value) {
  return static_cast<std::uint8_t>(narrow<kE5m2Format>(value));
}

float float_from_bf16(std::uint16_t bits) { return widen_bf16(bits); }
float float_from_fp16(std::uint16_t bits) { return widen<kFp16Format>(bits); }
float float_from_e4m3(std::uint8_t bits) { return widen<kE4m3Format>(bits); }
float float_from_e5m2(std::uint8_t bits) { return widen<kE5m2Format>(bits); }

// Without the arrays of decode(): oracles and mutants read most of their operands one by one.
float load(Dtype dtype, const void* data, std::int64_t index) {
  switch (dtype) {
    case Dtype::kFp32: {
      float value = 0;
      std::memcpy(&value, static_cast<const std::byte*>(data) + index * 4, sizeof(value));
      return value;
    }
    case Dtype::kBf16:
      return widen_bf16(static_cast<const std::uint16_t*>(data)[index]);
    case Dtype::kFp16:
      return widen<kFp16Format>(static_cast<const std::uint16_t*>(data)[index]);
    case Dtype::kE4m3:
      return widen<kE4m3Format>(static_cast<const std::uint8_t*>(data)[index]);
    case Dtype::kE5m2:
      return widen<kE5m2Format>(static_cast<const std::uint8_t*>(data)[index]);
  }
  throw std::logic_error("dtype outside the enumeration");
}

void store(Dtype dtype, void* data, std::int64_t index, float value) {
  auto* bytes = static_cast<std::byte*>(data) + index * size_bytes(dtype);
  encode(dtype, {&value, 1}, bytes);
}

void encode(Dtype dtype, std::span<const float> in, void* out) {
  switch (dtype) {
    case Dtype::kFp32:
      if (!in.empty()) {
        std::memcpy(out, in.data(), in.size_bytes());
      }
      return;
    case Dtype::kBf16:
      return encode_all<std::uint16_t>(in, out, [](float v) { return narrow_bf16(v); });
    case Dtype::kFp16:
      return encode_all<std::uint16_t>(in, out, [](float v) { return narrow<kFp16Format>(v); });
    case Dtype::kE4m3:
      return encode_all<std::uint8_t>(in, out, [](float v) { return narrow<kE4m3Format>(v); });
    case Dtype::kE5m2:
      return encode_all<std::uint8_t>(in, out, [](float v) { return narrow<kE5m2Format>(v); });
  }
  throw std::logic_error("dtype outside the enumeration");
}

void decode(Dtype dtype, const void* in, std::span<float> out) {
  switch (dtype) {
    case Dtype::kFp32:
      if (!out.empty()) {
        std::memcpy(out.data(), in, out.size_bytes());
      }
      return;
    case Dtype::kBf16:
      return decode_all<std::uint16_t>(in, out, [](auto code) { return widen_bf16(code); });
    case Dtype::kFp16:
      return decode_all<std::uint16_t>(in, out, [](auto code) { return widen<kFp16Format>(code); });
    case Dtype::kE4m3:
      return decode_eight_bits<kE4m3Format>(in, out);
    case Dtype::kE5m2:
      return decode_eight_bits<kE5m2Format>(in, out);
  }
  throw std::logic_error("dtype outside the enumeration");
}

float rounded_to_bits(float value, int bits) {
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

}  // namespace lora_bench
