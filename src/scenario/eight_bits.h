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

}  // namespace lora_bench
