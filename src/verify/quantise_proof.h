#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/backend.h"
#include "verify/array_proof.h"
#include "verify/diagnose.h"
#include "verify/mutants.h"
#include "verify/verify.h"
#include "workload/quantise.h"

namespace lora_bench {

// What reference/quantise.h makes of the inputs: all outputs, in the order of outputs_of.
[[nodiscard]] QuantiseArrays promised_codes(const QuantiseProblem& problem,
                                            const QuantiseArrays& inputs);

// Every code and every scale bit for bit against the reference, for kQuantiseDraws draws of x, with
// NaN and with huge numbers in its gaps, each in arrays that are aligned well and to one entry
// alone, over outputs of which every byte differs from what is promised; guards and inputs. With
// relations also: recorded once, then replayed for other numbers and the first again. Throws what
// the quantiser throws.
[[nodiscard]] Verdict verify_quantise(const QuantiseStep& step, const Quantiser& quantiser,
                                      Memory& memory, bool relations);

// Bit for bit.
[[nodiscard]] EntriesCompared compare_codes(const QuantiseProblem& problem,
                                            const QuantiseArrays& promised,
                                            const QuantiseArrays& got);
// What lies where a quantiser is to write: no byte of it is what is promised.
[[nodiscard]] QuantiseArrays unlike(QuantiseArrays promised);
// The first fault that explains every byte of what was left where `before` lay; `earlier` as in
// quantised_with. No key where none does.
[[nodiscard]] Hypothesis diagnose_codes(const QuantiseProblem& problem,
                                        const QuantiseArrays& inputs, const QuantiseArrays& before,
                                        const QuantiseArrays& earlier, const QuantiseArrays& got);

// Numbers of other launches of the same sizes: what is drawn next, 2^-3 of these, zeros, and these
// with one number or one scale changed at a place that follows from the secret.
struct OtherNumbers {
  std::string_view name;
  QuantiseArrays inputs;
};
[[nodiscard]] std::vector<OtherNumbers> other_numbers(const QuantiseStep& step,
                                                      const QuantiseArrays& inputs,
                                                      std::uint64_t secret);

// One mistake of a quantiser: a mutant makes it, and a failure whose entries it explains bears its
// name.
struct QuantiseFault {
  std::string_view fault, meaning, source;
};
[[nodiscard]] std::span<const QuantiseFault> quantise_faults();
// What a quantiser with that fault leaves where `before` lay; `earlier`: the inputs of the launch
// before, none for the first.
[[nodiscard]] QuantiseArrays quantised_with(std::string_view fault, const QuantiseProblem& problem,
                                            const QuantiseArrays& inputs,
                                            const QuantiseArrays& before,
                                            const QuantiseArrays& earlier);
// Null where it is no fault of op quantise.
[[nodiscard]] std::unique_ptr<Backend> make_quantise_mutant(std::string_view fault);

// Small steps that show every fault.
struct TellingQuantise {
  std::string id;
  QuantiseStep step;
};
[[nodiscard]] std::vector<TellingQuantise> telling_quantise();
[[nodiscard]] SelfTestRow hunt_quantise(const QuantiseFault& fault,
                                        const std::vector<TellingQuantise>& steps);
// Every quantiser that is to be right, over the telling steps; a failure is a false alarm.
void try_right_quantisers(const std::vector<TellingQuantise>& steps, SelfTestReport& report);

}  // namespace lora_bench
