#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/named.h"

namespace lora_bench {

// Which elements of A, or of B, of an adapter have a scale together: all of a slice, those of a
// lane of A or an output of B, or a block of these; none where weights have more than eight bits.
enum class WeightsScale : std::uint8_t { kNone, kTensor, kChannel, kBlock };
template <>
struct EnumNames<WeightsScale> {
  static constexpr std::array<std::string_view, 4> kNames{"none", "tensor", "channel", "block"};
};

// Weights of eight bits, which stand for what they are times a scale in fp32.
struct WeightsSpec {
  std::optional<Dtype> dtype;  // e4m3 or e5m2; none: A and B have no scales
  WeightsScale scale = WeightsScale::kNone;
  std::vector<std::int64_t> block;  // of scale block: lanes (of B: outputs), and K (of B: lanes)

  [[nodiscard]] bool operator==(const WeightsSpec&) const = default;
};

// Which elements of x, or of an h that is given, have a scale together: all of an x, or of a slice
// of h, those of a token, or a run of K, or of lanes, of a token; none where it has more than eight
// bits.
enum class ActivationsScale : std::uint8_t { kNone, kTensor, kToken, kBlock };
template <>
struct EnumNames<ActivationsScale> {
  static constexpr std::array<std::string_view, 4> kNames{"none", "tensor", "token", "block"};
};

// An x of eight bits, which stands for what it is times a scale in fp32. y and bias stay as the
// case has them, h as `intermediate` says. Op expand has no x: there it is the h that is given.
struct ActivationsSpec {
  std::optional<Dtype> dtype;  // e4m3 or e5m2; none: without scales
  ActivationsScale scale = ActivationsScale::kNone;
  std::int64_t group = 0;  // of scale block: input features, or lanes, of a block

  [[nodiscard]] bool operator==(const ActivationsSpec&) const = default;
};

// How op quantise gets from x and a scale to eight bits: x / scale, or x times what is nearest to
// 1 / scale.
enum class Convert : std::uint8_t { kDivide, kMultiply };
template <>
struct EnumNames<Convert> {
  static constexpr std::array<std::string_view, 2> kNames{"divide", "multiply"};
};
// Whether op quantise makes the scales of x, or is given them.
enum class ScalesOfX : std::uint8_t { kMade, kGiven };
template <>
struct EnumNames<ScalesOfX> {
  static constexpr std::array<std::string_view, 2> kNames{"made", "given"};
};

// What op quantise does to x, and an op linear that quantises h does to h, each step rounded to
// fp32: amax = max(max |x|, least_amax); scale = max(amax / largest, least_scale), with
// power_of_two the least power of two that is not below it; then x is converted, held between
// -largest and largest, and rounded to the nearest number of eight bits, at a tie to the even one.
// `largest` is that of the format.
struct QuantiserSpec {
  Convert convert = Convert::kDivide;
  ScalesOfX scales = ScalesOfX::kMade;
  double least_amax = 0;
  std::optional<double> least_scale;  // none: 1 / (512 x largest)
  bool power_of_two = false;

  [[nodiscard]] bool operator==(const QuantiserSpec&) const = default;
};

}  // namespace lora_bench
