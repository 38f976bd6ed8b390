#include "core/dtype.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "core/random.h"

using namespace lora_bench;

namespace {

// A second formulation, slow and plain: the table of all values of a format, and the nearest of
// two neighbours in double. It knows nothing of how convert.cpp works.
struct Narrow {
  Dtype dtype;
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;

  [[nodiscard]] std::uint32_t sign() const { return 1U << (exponent_bits + mantissa_bits); }
  [[nodiscard]] std::uint32_t first_special() const {
    return has_infinity ? ((1U << exponent_bits) - 1) << mantissa_bits : sign() - 1;
  }
  [[nodiscard]] double value(std::uint32_t magnitude) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const int mantissa = static_cast<int>(magnitude & ((1U << mantissa_bits) - 1));
    const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    return std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits);
  }
  [[nodiscard]] bool is_nan(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign() - 1);
    return has_infinity ? magnitude > first_special() : magnitude == first_special();
  }
};

const std::vector<Narrow> kFormats{{Dtype::kBf16, 8, 7, true},
                                   {Dtype::kFp16, 5, 10, true},
                                   {Dtype::kE4m3, 4, 3, false},
                                   {Dtype::kE5m2, 5, 2, true}};

// Codes of non-negative values; quick when it is asked for ascending ones.
class Nearest {
 public:
  explicit Nearest(const Narrow& format) {
    for (std::uint32_t code = 0; code <= format.first_special(); ++code) {
      values_.push_back(format.value(code));
    }
  }
  // The first special code stands for what is too large, as if the format went on.
  std::uint32_t code(double magnitude) {
    if (magnitude >= values_.back()) {
      return static_cast<std::uint32_t>(values_.size() - 1);
    }
    if (magnitude < values_[below_]) {
      below_ = 0;
    }
    if (magnitude > values_[std::min(below_ + 4, values_.size() - 1)]) {
      const auto above = std::upper_bound(values_.begin(), values_.end(), magnitude);
      below_ = static_cast<std::size_t>(above - values_.begin()) - 1;
    }
    while (magnitude >= values_[below_ + 1]) {
      ++below_;
    }
    const double to_below = magnitude - values_[below_];
    const double to_above = values_[below_ + 1] - magnitude;
    const bool up = to_above < to_below || (to_above == to_below && below_ % 2 == 1);
    return static_cast<std::uint32_t>(below_ + (up ? 1 : 0));
  }

 private:
  std::vector<double> values_;
  std::size_t below_ = 0;
};

std::uint32_t code_of(Dtype dtype, float value) {
  switch (dtype) {
    case Dtype::kBf16:
      return bf16_from_float(value);
    case Dtype::kFp16:
      return fp16_from_float(value);
    case Dtype::kE4m3:
      return e4m3_from_float(value);
    default:
      return e5m2_from_float(value);
  }
}

float value_of(Dtype dtype, std::uint32_t code) {
  switch (dtype) {
    case Dtype::kBf16:
      return float_from_bf16(static_cast<std::uint16_t>(code));
    case Dtype::kFp16:
      return float_from_fp16(static_cast<std::uint16_t>(code));
    case Dtype::kE4m3:
      return float_from_e4m3(static_cast<std::uint8_t>(code));
    default:
      return float_from_e5m2(static_cast<std::uint8_t>(code));
  }
}

bool agrees(const Narrow& format, Nearest& nearest, float value) {
  const std::uint32_t code = code_of(format.dtype, value);
  if (std::isnan(value)) {
    return format.is_nan(code);
  }
  const double wide = static_cast<double>(value);
  const std::uint32_t expected =
      nearest.code(std::fabs(wide)) | (std::signbit(value) ? format.sign() : 0U);
  return code == expected;
}

// Every exponent with random mantissas, and the four neighbours of every value and every tie.
std::vector<float> stratified_inputs(const Narrow& format, std::int64_t per_exponent) {
  std::vector<float> inputs;
  const RandomStream random(20, static_cast<std::uint64_t>(format.dtype));
  std::uint64_t drawn = 0;
  for (std::uint32_t top = 0; top < 512; ++top) {
    for (std::int64_t i = 0; i < per_exponent; ++i) {
      const auto mantissa = static_cast<std::uint32_t>(random.bits(drawn++) & 0x7fffffU);
      inputs.push_back(std::bit_cast<float>((top << 23) | mantissa));
    }
  }
  for (std::uint32_t code = 0; code < format.first_special(); ++code) {
    const double here = format.value(code);
    const double tie = (here + format.value(code + 1)) / 2;
    for (const double centre : {here, tie}) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<float>(centre));
      for (std::uint32_t step = 0; step < 5; ++step) {
        const std::uint32_t near = bits + step < 2 ? 0 : bits + step - 2;
        inputs.push_back(std::bit_cast<float>(near));
        inputs.push_back(std::bit_cast<float>(near | 0x80000000U));
      }
    }
  }
  return inputs;
}

}  // namespace

TEST_CASE("every narrow code decodes to the value of its sign, exponent and mantissa") {
  for (const Narrow& format : kFormats) {
    CAPTURE(name(format.dtype));
    std::int64_t wrong = 0;
    for (std::uint32_t code = 0; code < 2 * format.sign(); ++code) {
      const std::uint32_t magnitude = code & (format.sign() - 1);
      const float got = value_of(format.dtype, code);
      if (format.is_nan(code)) {
        wrong += std::isnan(got) ? 0 : 1;
        continue;
      }
      const bool infinite = format.has_infinity && magnitude == format.first_special();
      const double size =
          infinite ? std::numeric_limits<double>::infinity() : format.value(magnitude);
      const bool negative = (code & format.sign()) != 0;
      wrong += std::fabs(static_cast<double>(got)) == size && std::signbit(got) == negative ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("every narrow code survives a round trip through fp32") {
  for (const Narrow& format : kFormats) {
    CAPTURE(name(format.dtype));
    std::int64_t wrong = 0;
    for (std::uint32_t code = 0; code < 2 * format.sign(); ++code) {
      const std::uint32_t back = code_of(format.dtype, value_of(format.dtype, code));
      const bool same = format.is_nan(code) ? format.is_nan(back) : back == code;
      wrong += same ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("fp32 rounds to the nearest narrow value, ties to even, in every exponent and at ties") {
  for (const Narrow& format : kFormats) {
    CAPTURE(name(format.dtype));
    Nearest nearest(format);
    std::int64_t wrong = 0;
    for (const float input : stratified_inputs(format, 1200)) {
      wrong += agrees(format, nearest, input) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("all 2^32 fp32 inputs round to the nearest narrow value" *
          doctest::skip(std::getenv("LORA_BENCH_NIGHTLY") == nullptr)) {
  for (const Narrow& format : kFormats) {
    CAPTURE(name(format.dtype));
    Nearest nearest(format);
    std::int64_t wrong = 0;
    for (std::uint64_t bits = 0; bits < 0x100000000U; ++bits) {
      wrong +=
          agrees(format, nearest, std::bit_cast<float>(static_cast<std::uint32_t>(bits))) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("overflow, infinity and NaN follow each format's rules") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(bf16_from_float(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(fp16_from_float(65519.0F) == 0x7bff);
  CHECK(fp16_from_float(65520.0F) == 0x7c00);
  CHECK(fp16_from_float(-infinity) == 0xfc00);
  CHECK(e4m3_from_float(464.0F) == 0x7e);
  CHECK(e4m3_from_float(464.01F) == 0x7f);
  CHECK(e4m3_from_float(-infinity) == 0xff);
  CHECK(e5m2_from_float(61439.0F) == 0x7b);
  CHECK(e5m2_from_float(61440.0F) == 0x7c);
  CHECK(bf16_from_float(std::bit_cast<float>(0x7f800001U)) == 0x7fc0);
  CHECK(fp16_from_float(std::bit_cast<float>(0xff800001U)) == 0xfe00);
}

TEST_CASE("whole arrays convert as their elements do, at any length") {
  for (const Dtype dtype : {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3, Dtype::kE5m2}) {
    CAPTURE(name(dtype));
    for (const std::size_t length : {0, 1, 7, 16, 33, 1001}) {
      std::vector<float> values(length);
      for (std::size_t i = 0; i < length; ++i) {
        values[i] = static_cast<float>(random_unit(3, 3, i) * 4 - 2);
      }
      std::vector<std::byte> codes(length * static_cast<std::size_t>(size_bytes(dtype)));
      encode(dtype, values, codes.data());
      std::vector<float> back(length);
      decode(dtype, codes.data(), back);
      std::vector<std::byte> one_by_one(codes.size());
      for (std::size_t i = 0; i < length; ++i) {
        store(dtype, one_by_one.data(), static_cast<std::int64_t>(i), values[i]);
        CHECK(load(dtype, codes.data(), static_cast<std::int64_t>(i)) == back[i]);
        const double error = std::fabs(static_cast<double>(back[i] - values[i]));
        CHECK(error <= unit_roundoff(dtype) * 2);
      }
      CHECK(codes == one_by_one);
    }
  }
}
