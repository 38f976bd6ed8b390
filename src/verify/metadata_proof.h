#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/backend.h"
#include "verify/diagnose.h"
#include "verify/mutants.h"
#include "verify/verify.h"
#include "workload/metadata.h"

namespace lora_bench {

// What reference/metadata.h promises of the step, in the order of outputs_of.
[[nodiscard]] std::vector<FilledArray> promised_metadata(const MetadataProblem& problem,
                                                         const EngineStep& engine);

// What an entry holds before a launch: not the number that is promised, nor any that is likely. Of
// an entry of which nothing is promised it is made of its index.
[[nodiscard]] std::int64_t poison_of(std::int64_t promised);

// What a launch left, of form align with the pairs of a slot and an expert where the reference has
// them: they may stand in any order.
[[nodiscard]] std::vector<std::vector<std::byte>> in_promised_order(
    const MetadataProblem& problem, const std::vector<FilledArray>& promised,
    std::vector<std::vector<std::byte>> outputs);

// Every promised entry against the reference, over outputs that hold another number in each; guards
// and inputs; the same with arrays that are aligned to one entry alone. With relations also: again,
// over what it left; and recorded once, then replayed for other steps of the same sizes: with more
// adapters, fewer, one, none, and rows in another order. Entries of the table from request to slot
// that no row names hold slots that would be wrong. Throws what the builder throws.
[[nodiscard]] Verdict verify_metadata(const MetadataStep& step, const MetadataBuilder& builder,
                                      Memory& memory, bool relations);

// The first wrong entry of what a launch left, "" where every promised one is right; for after
// timing: nobody knows then what lay in entries that are left alone.
[[nodiscard]] std::string wrong_metadata(const MetadataProblem& problem, const EngineStep& engine,
                                         const std::vector<std::vector<std::byte>>& outputs);

// Other steps of the same sizes, as later ones of an engine might be.
struct OtherStep {
  std::string_view name;
  EngineStep engine;
};
[[nodiscard]] std::vector<OtherStep> other_steps(const MetadataStep& step);
// Steps that differ from this one in one entry of what the engine has, at places that follow from
// `secret`: who looks at some entries to see whether anything is new sees the same.
[[nodiscard]] std::vector<EngineStep> steps_of_one_change(const MetadataStep& step,
                                                          std::uint64_t secret);

// What a launch left, beside what is promised, what lay there before, and what was promised of the
// steps that were made in the same buffers before.
struct MetadataEvidence {
  const MetadataStep& step;
  const std::vector<FilledArray>& promised;
  const std::vector<std::vector<std::byte>>& before;
  const std::vector<std::vector<std::byte>>& got;
  const std::vector<std::vector<FilledArray>>& earlier;
  std::vector<MetadataArray> arrays = outputs_of(step.problem);

  [[nodiscard]] std::int64_t got_at(std::size_t array, std::size_t entry) const;
  [[nodiscard]] bool is_wrong(std::size_t array, std::size_t entry) const;
  [[nodiscard]] bool is_unwritten(std::size_t array, std::size_t entry) const;
  // It holds what `poison_of` put there.
  [[nodiscard]] bool is_poison(std::size_t array, std::size_t entry) const;
};
// What happened, in the words of plans; the most specific first.
[[nodiscard]] const std::vector<HypothesisDoc>& metadata_hypotheses();
[[nodiscard]] Hypothesis diagnose_metadata(const MetadataEvidence& evidence);

// Builders with one fault each, named after what happened to engines; `form` is the one that shows
// it.
struct MetadataFaultDoc {
  std::string_view fault, meaning, hypothesis, source;
  Form form = Form::kKernel;
};
[[nodiscard]] std::span<const MetadataFaultDoc> metadata_faults();
// Null where it is no fault of metadata.
[[nodiscard]] std::unique_ptr<Backend> make_metadata_mutant(std::string_view fault);

// Small steps of every form that show every fault.
struct TellingMetadata {
  std::string id;
  MetadataStep step;
};
[[nodiscard]] std::vector<TellingMetadata> telling_metadata();
[[nodiscard]] SelfTestRow hunt_metadata(const MetadataFaultDoc& doc,
                                        const std::vector<TellingMetadata>& steps);
// Every builder that is to be right, over the telling steps; a failure is a false alarm.
void try_right_metadata(const std::vector<TellingMetadata>& steps, SelfTestReport& report);

}  // namespace lora_bench
