#include "scenario/content_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenario/scenario_text.h"

namespace lora_bench {
namespace {

// Everything that changes what is run or how it is judged, and nothing else: not tags, not where
// the file lies. A field that is added later changes nothing where it is not said.
std::string hashed_text(const Case& spec) {
  return fmt::format("{}|{}|{}|{}\n", spec.id, scenario_text(spec), fmt::join(spec.skew.trace, ","),
                     fmt::join(spec.prefill_skew.trace, ","));
}

}  // namespace

std::uint64_t content_hash(const std::vector<Case>& cases) {
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const Case& spec : cases) {
    for (const char c : hashed_text(spec)) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    }
  }
  return hash;
}

}  // namespace lora_bench
