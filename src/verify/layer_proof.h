#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/layer_engine.h"
#include "layers/layer_home.h"
#include "layers/layer_tensors.h"
#include "reference/layer.h"
#include "verify/layer_diagnose.h"
#include "verify/layer_scan.h"
#include "verify/verify.h"

namespace lora_bench {

// What the layer that is not divided ends with.
[[nodiscard]] reference::LayerRows layer_oracle(const LayerProblem& problem,
                                                const LayerTensors& tensors,
                                                const reference::LayerArithmetic& arithmetic,
                                                const std::vector<std::int64_t>& rows);

[[nodiscard]] ShardOutputs outputs_of(const LayerEngine& engine);

// Compares to it what every shard ended with; guards too. Of all rows: no NaN, and those with an
// infinity are compared as `more` rows are.
[[nodiscard]] Verdict compare_layer(const LayerEngine& engine, const LayerProblem& problem,
                                    const reference::LayerRows& oracle,
                                    Level level = Level::kBounded, const MoreRows& more = {});
[[nodiscard]] Verdict compare_shards(const LayerProblem& problem,
                                     const reference::LayerRows& oracle, const ShardOutputs& got,
                                     Level level = Level::kBounded, const MoreRows& more = {});

// What is wrong in few rows of a layer with these tensors, too few to say how much of a bound
// proves nothing; "" = right.
[[nodiscard]] std::string wrong_rows(const LayerEngine& engine, const LayerProblem& problem,
                                     const LayerTensors& tensors,
                                     const reference::LayerArithmetic& arithmetic,
                                     const std::vector<std::int64_t>& rows);

// What the two backends declared of the shards' problems, and the communicator of its sums, as the
// oracle takes it.
[[nodiscard]] reference::LayerArithmetic layer_arithmetic(const LayerProblem& problem,
                                                          const LayerHome& home);
// Of sums that a local communicator makes.
[[nodiscard]] reference::LayerArithmetic layer_arithmetic(const LayerProblem& problem,
                                                          const Backend& base, const Backend& lora);

// Names the fault of a layer that failed by its values, where one fits.
void name_fault(Verdict& verdict, const LayerStory& story, const reference::LayerRows& oracle,
                const ShardOutputs& got);

// Runs a layer that was loaded once, with all its shards, and compares; guards too, that its inputs
// are those of `untouched` (levels 2 and 4 of docs/verifying.md), and the bias that it returns.
[[nodiscard]] Verdict prove_layer(LayerEngine& engine, const LayerEngine& untouched,
                                  const LayerProblem& problem, const LayerTensors& tensors,
                                  const reference::LayerRows& oracle, const LayerHome& home,
                                  Level level = Level::kBounded, const MoreRows& more = {});
// Level 3 of a layer that passed the others.
void add_relations(Verdict& verdict, const LayerProblem& problem, const LayerTensors& tensors,
                   const LayerHome& home, const reference::LayerRows& oracle);
// The same on numbers of full mantissa, drawn by the options' seed, in slots that held other
// adapters before; where every rounding can be modelled, first on integers, bit for bit (level 1);
// with the relations (level 3) where the options ask for them.
[[nodiscard]] Verdict verify_layer(const LayerProblem& problem, const LayerHome& home,
                                   const VerifyOptions& options);
[[nodiscard]] Verdict verify_layer(const LayerProblem& problem, const Backend& base,
                                   const Backend& lora, Memory& memory,
                                   const VerifyOptions& options);

}  // namespace lora_bench
