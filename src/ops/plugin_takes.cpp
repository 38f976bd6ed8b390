#include "ops/plugin_takes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "lora_bench_backend.h"
#include "workload/semantics.h"

namespace lora_bench {
namespace {

// In the order of the semantics.
constexpr std::array<std::pair<std::uint64_t, const char*>, kSemantics> kTakes{
    {{LORA_BENCH_TAKES_ZEROED_IDLE_ROWS, "LORA_BENCH_TAKES_ZEROED_IDLE_ROWS"},
     {LORA_BENCH_TAKES_ADDING_SHRINK, "LORA_BENCH_TAKES_ADDING_SHRINK"},
     {LORA_BENCH_TAKES_BIAS_OF_SOME_SLICES, "LORA_BENCH_TAKES_BIAS_OF_SOME_SLICES"},
     {LORA_BENCH_TAKES_RANK0_BIAS, "LORA_BENCH_TAKES_RANK0_BIAS"},
     {LORA_BENCH_TAKES_OTHER_DTYPES, "LORA_BENCH_TAKES_OTHER_DTYPES"},
     {LORA_BENCH_TAKES_OWN_INPUTS, "LORA_BENCH_TAKES_OWN_INPUTS"},
     {LORA_BENCH_TAKES_KERNEL_FORM, "LORA_BENCH_TAKES_KERNEL_FORM"},
     {LORA_BENCH_TAKES_CHUNKED_FORM, "LORA_BENCH_TAKES_CHUNKED_FORM"},
     {LORA_BENCH_TAKES_OTHER_LAYOUTS, "LORA_BENCH_TAKES_OTHER_LAYOUTS"},
     {LORA_BENCH_TAKES_SCALED_WEIGHTS, "LORA_BENCH_TAKES_SCALED_WEIGHTS"},
     {LORA_BENCH_TAKES_SCALED_ACTIVATIONS, "LORA_BENCH_TAKES_SCALED_ACTIVATIONS"},
     {LORA_BENCH_TAKES_SCALED_H, "LORA_BENCH_TAKES_SCALED_H"},
     {LORA_BENCH_TAKES_QUANTISED_H, "LORA_BENCH_TAKES_QUANTISED_H"},
     {LORA_BENCH_TAKES_SHARED_X, "LORA_BENCH_TAKES_SHARED_X"},
     {LORA_BENCH_TAKES_ROW_FACTORS, "LORA_BENCH_TAKES_ROW_FACTORS"}}};
static_assert([] {
  for (std::size_t i = 0; i < kTakes.size(); ++i) {
    if (kTakes[i].first != bit_of(static_cast<Semantic>(i))) {
      return false;
    }
  }
  return true;
}());

// Without what they all begin with, in lower case.
std::string name_in_python(const std::string& bit) {
  std::string name = bit.substr(std::string_view("LORA_BENCH_TAKES_").size());
  std::transform(name.begin(), name.end(), name.begin(), [](char letter) {
    return 'A' <= letter && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return name;
}

}  // namespace

std::string not_named(const Problem& problem, std::uint64_t takes) {
  const bool poisoned =
      std::any_of(problem.rank.begin(), problem.rank.end(),
                  [&](std::int64_t rank) { return rank > 0 && rank < problem.max_rank; });
  if ((takes & LORA_BENCH_READS_PADDING) != 0 && poisoned) {
    return "it reads lanes above an adapter's rank, which hold NaN here: adapters.padding: zeros";
  }
  Semantics named;
  named.bits = takes;
  const std::optional<Semantic> refused = refused_semantic(problem, named);
  if (!refused) {
    return "";
  }
  const std::string bit{kTakes.at(static_cast<std::size_t>(*refused)).second};
  return fmt::format("{}: `takes` of its descriptor does not name {}, in Python \"{}\"",
                     doc_of(*refused).asked(problem), bit, name_in_python(bit));
}

}  // namespace lora_bench
