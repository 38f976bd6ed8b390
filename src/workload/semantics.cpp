#include "workload/semantics.h"

#include <fmt/format.h>

namespace lora_bench {

namespace {

// Of slices without columns nobody asks.
bool has_bias_of_some(const Problem& problem) {
  bool with = false, without = false;
  for (std::int64_t slice = 0; slice < problem.slices() && has_expand(problem.op); ++slice) {
    const bool columns = problem.widths[static_cast<std::size_t>(slice)] > 0;
    with = with || (columns && problem.has_bias(slice));
    without = without || (columns && !problem.has_bias(slice));
  }
  return with && without;
}

}  // namespace

const std::array<SemanticDoc, kSemantics>& semantic_docs() {
  static constexpr std::array<SemanticDoc, kSemantics> kDocs{{
      {Semantic::kZeroedIdleRows, "idle_rows: zeroed",
       "it leaves rows that no adapter acts on as they are",
       [](const Problem& problem) { return problem.zeroes_idle_rows(); }},
      {Semantic::kAddingShrink, "shrink_adds: true", "it overwrites h",
       [](const Problem& problem) { return problem.adds_to_h(); }},
      {Semantic::kBiasOfSomeSlices, "adapters.bias_slices: some", "it has a bias of all or of none",
       has_bias_of_some},
      {Semantic::kRankZeroBias, "adapters.rank0_bias: true",
       "an adapter of rank 0 does nothing there",
       [](const Problem& problem) { return problem.biases_rank0(); }},
  }};
  return kDocs;
}

std::string semantics_text(const Problem& problem) {
  std::string text;
  for (const SemanticDoc& doc : semantic_docs()) {
    if (doc.is_asked(problem)) {
      text += fmt::format("{}{}", text.empty() ? "" : ", ", doc.asked);
    }
  }
  return text;
}

const SemanticDoc& doc_of(Semantic semantic) {
  return semantic_docs().at(static_cast<std::size_t>(semantic));
}

std::optional<Semantic> refused_semantic(const Problem& problem, Semantics taken) {
  for (const SemanticDoc& doc : semantic_docs()) {
    if (doc.is_asked(problem) && !taken.has(doc.semantic)) {
      return doc.semantic;
    }
  }
  return std::nullopt;
}

std::string semantics_refused(const Problem& problem, Semantics taken) {
  const std::optional<Semantic> refused = refused_semantic(problem, taken);
  return refused ? fmt::format("{}: {}", doc_of(*refused).asked, doc_of(*refused).refusal) : "";
}

}  // namespace lora_bench
