#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "layers/layer_engine.h"
#include "reference/layer.h"
#include "verify/diagnose.h"
#include "verify/layer_faults.h"
#include "verify/verify.h"

namespace lora_bench {

// What each shard ended with, [shard]; columns as columns_of_output has them.
using ShardOutputs = std::vector<Matrix>;

// Rows beyond those that were sampled, and the oracle of any rows.
struct MoreRows {
  std::function<reference::LayerRows(const std::vector<std::int64_t>&)> oracle;
  std::vector<std::int64_t> rows;
};

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

// Level 3 of a whole layer: what must hold among its own results, whatever the oracle says. "" when
// all of it holds, else the first relation that does not. `oracle` says how far a result may be
// off.
[[nodiscard]] std::string broken_layer_relation(const LayerProblem& problem,
                                                const LayerTensors& tensors, const LayerHome& home,
                                                const reference::LayerRows& oracle);

// What every row of a layer says without an oracle: all of it is written, so no NaN may be left.
struct ShardScan {
  std::optional<Failure> nan;
  std::vector<std::int64_t> infinite_rows;  // the first few, right only where the oracle says so
};
[[nodiscard]] ShardScan scan_shards(const LayerProblem& problem, const ShardOutputs& got);

// Different ones of all rows, as `secret` has it: of few whose oracle takes long.
[[nodiscard]] std::vector<std::int64_t> any_layer_rows(const LayerProblem& problem,
                                                       std::uint64_t secret);

// The fault whose prediction agrees with the rows of the oracle in what every shard ended with;
// empty where none does, or where the layer is so large that asking would take long.
[[nodiscard]] Hypothesis diagnose_layer(const LayerStory& story, const reference::LayerRows& oracle,
                                        const ShardOutputs& got);

}  // namespace lora_bench
