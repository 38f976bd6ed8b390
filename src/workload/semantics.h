#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "workload/problem.h"

namespace lora_bench {

// What a step may ask beyond the plain op, which every backend does. A backend that does not name
// one of them as its own refuses it.
enum class Semantic : std::uint8_t {
  kZeroedIdleRows,
  kAddingShrink,
  kBiasOfSomeSlices,
  kRankZeroBias,
  kOtherDtypes,
  kOwnInputs,
  kKernelForm,
  kChunkedForm,
  kOtherLayouts,
  kScaledWeights,
  kScaledActivations,
  kScaledH,
  kQuantisedH,
  kSharedX,
  kRowFactors,
};

// The bit of one of them, as a plugin says it.
[[nodiscard]] constexpr std::uint64_t bit_of(Semantic semantic) {
  return std::uint64_t{1} << static_cast<unsigned>(semantic);
}

// Some of them.
struct Semantics {
  std::uint64_t bits = 0;

  constexpr Semantics() = default;
  template <typename... Each>
  constexpr explicit Semantics(Semantic first, Each... others)
      : bits((bit_of(first) | ... | bit_of(others))) {}

  [[nodiscard]] constexpr bool has(Semantic semantic) const {
    return (bits & bit_of(semantic)) != 0;
  }
};

inline constexpr std::size_t kSemantics = 15;
// What takes these takes every step: a new one comes with a kernel of the backends that do.
inline constexpr Semantics kAllSemantics = [] {
  Semantics all;
  all.bits = (std::uint64_t{1} << kSemantics) - 1;
  return all;
}();

struct SemanticDoc {
  Semantic semantic;
  std::string_view refusal;                      // what a backend does that does not take it
  std::string (*asked)(const Problem& problem);  // as a scenario says it; "" where it does not
};
[[nodiscard]] const std::array<SemanticDoc, kSemantics>& semantic_docs();
[[nodiscard]] const SemanticDoc& doc_of(Semantic semantic);

// What a step asks, as a scenario would say it: "idle_rows: zeroed"; "" of a plain op.
[[nodiscard]] std::string semantics_text(const Problem& problem);

// The first that the step asks and that is not among these.
[[nodiscard]] std::optional<Semantic> refused_semantic(const Problem& problem, Semantics taken);
// Why a backend that takes these refuses the step; "" where it takes all that is asked.
[[nodiscard]] std::string semantics_refused(const Problem& problem, Semantics taken);

}  // namespace lora_bench
