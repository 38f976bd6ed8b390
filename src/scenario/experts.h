#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/named.h"

namespace lora_bench {

// Which product of a layer of experts an op is: w13 takes the input of the layer to the columns of
// gate and up, so that the chosen experts of a token read one row of x; w2 takes what the
// activation made of them to the output, so that each chosen expert of a token has a row of x of
// its own.
enum class ExpertsPart : std::uint8_t { kW13, kW2 };
template <>
struct EnumNames<ExpertsPart> {
  static constexpr std::array<std::string_view, 2> kNames{"w13", "w2"};
};

// Where the weight that the router gives to a chosen expert is multiplied: in the output of w2, in
// the input of w13, or nowhere.
enum class WeightAt : std::uint8_t { kOutput, kInput, kNone };
template <>
struct EnumNames<WeightAt> {
  static constexpr std::array<std::string_view, 3> kNames{"output", "input", "none"};
};

// The experts of a layer, each of which has an A and a B of every adapter.
struct ExpertsSpec {
  std::int64_t count = 0;  // 0: the layer has none
  std::int64_t top_k = 1;  // experts of a token, all different
  ExpertsPart part = ExpertsPart::kW13;
  WeightAt weight_at = WeightAt::kOutput;
  bool renormalise = true;  // the weights of a token sum to `scaling`
  double scaling = 1;       // what the weights of the router are multiplied by
  double missing = 0;       // share of each adapter's experts that it has no A and B for

  [[nodiscard]] bool any() const { return count > 0; }
  [[nodiscard]] bool operator==(const ExpertsSpec&) const = default;
};

enum class Routing : std::uint8_t {
  kUniform,    // experts drawn without replacement
  kZipf,       // the largest of -a ln(rank of the expert) + Gumbel noise
  kHot,        // each choice falls into the first `hot` experts with probability p
  kGrouped,    // `groups_per_token` of `groups` runs of experts are drawn, and experts of these
  kBalanced,   // in turn, so that every expert has equally many rows
  kIdentical,  // the same experts for all tokens
  kTrace,      // read from a file, row after row, cycled
};
template <>
struct EnumNames<Routing> {
  static constexpr std::array<std::string_view, 7> kNames{
      "uniform", "zipf", "hot", "grouped", "balanced", "identical", "trace"};
};

// What a router said of one token.
struct RoutedToken {
  std::vector<std::int32_t> experts;  // -1: an expert that is elsewhere
  std::vector<float> weights;         // as many, or none: drawn

  [[nodiscard]] bool operator==(const RoutedToken&) const = default;
};

struct RoutingLaw {
  Routing kind = Routing::kUniform;
  double parameter = 0;  // zipf: a; hot: p
  std::int64_t hot = 1;  // of hot: experts
  std::int64_t groups = 1, groups_per_token = 1;
  double per_adapter = 0;  // share of the adapters that order the experts their own way
  std::string trace_file;  // as written, for messages
  std::vector<RoutedToken> trace;

  [[nodiscard]] bool operator==(const RoutingLaw&) const = default;
};

}  // namespace lora_bench
