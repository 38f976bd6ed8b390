#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "verify/groundwork.h"
#include "verify/layer_faults.h"
#include "verify/layer_proof.h"
#include "verify/mutants.h"

namespace lora_bench {

using ProgressLine = std::function<void(const std::string&)>;

// How a backend is proved on a problem: `verify`, which an empty one stands for, or what a test
// puts in its place to see the self-test notice.
using Prover =
    std::function<Verdict(const Problem&, const Backend&, Memory&, const VerifyOptions&)>;

// Cases to hunt in. What all proofs of a case share is made once for whoever hunts there: mutants
// differ, operands and what is right do not.
class HuntingGround {
 public:
  explicit HuntingGround(const std::vector<Case>& cases);

  struct Place {
    Case spec;
    std::unique_ptr<Groundwork> groundwork;
  };
  [[nodiscard]] const std::vector<Place>& places() const { return places_; }

 private:
  std::vector<Place> places_;
};

// The first case that catches the mutant, the level and the hypothesis that were named. Ends early,
// with a row that says nothing, when `stop` says so.
[[nodiscard]] SelfTestRow hunt(const std::string& fault, const HuntingGround& ground,
                               Part without = Part::kNone, const Stop& stop = never,
                               const Prover& prover = {});

// The same with the verdict on the name, and on the part of the proof that is to catch it alone.
[[nodiscard]] SelfTestRow hunt_and_judge(const MutantDoc& doc, const HuntingGround& ground,
                                         const Stop& stop = never, const Prover& prover = {});

// A backend that claims to be right over random cases; a failure is a false alarm.
void try_correct(const Backend& backend, std::int64_t cases, std::uint64_t seed,
                 SelfTestReport& report, const Stop& stop = never, const Prover& prover = {});

// Small layers of every kind, divided in every way, with ragged ranks, rows without adapter, blocks
// that adapters leave alone, blocks of no columns, a base bias.
struct TellingLayer {
  std::string id;  // "row-tp4-fully"
  LayerProblem problem;
};
[[nodiscard]] std::vector<TellingLayer> telling_layers();

// What every shard would end with if the layer had the fault, in the dtype of y.
[[nodiscard]] ShardOutputs faulty_outputs(const LayerStory& story, LayerFault fault);

// The first of the layers whose proof catches the fault, and whether it is named as it is.
[[nodiscard]] SelfTestRow hunt_layer(const LayerFaultDoc& doc,
                                     const std::vector<TellingLayer>& layers,
                                     const Stop& stop = never);

// The engine on the host, with the cpu backend, and the faultless model over all of them; a failure
// is a false alarm.
void try_right_layers(const std::vector<TellingLayer>& layers, SelfTestReport& report,
                      const Stop& stop = never);

}  // namespace lora_bench
