#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/facts.h"
#include "device/memory.h"
#include "ops/operands.h"
#include "workload/metadata.h"
#include "workload/problem.h"
#include "workload/quantise.h"
#include "workload/semantics.h"

namespace lora_bench {

// How the bias comes to y: in one sum with delta, or by a rounding of its own to the output dtype,
// y + bias before delta is added, or y + delta before the bias is.
enum class BiasAdded : std::uint8_t { kWithDelta, kBefore, kAfter };
template <>
struct EnumNames<BiasAdded> {
  static constexpr std::array<std::string_view, 3> kNames{"with-delta", "before", "after"};
};

// What a backend promises about its arithmetic. The bound that its results must meet and the
// relations that they must keep follow from this, so a false declaration is found out.
struct Numerics {
  double unit_roundoff = 0x1p-24;     // of one accumulation step; 0x1p-23 on tensor cores
  std::int64_t shrink_depth = 0;      // additions on the longest path of a sum over K
  std::int64_t expand_depth = 0;      // the same over the rank, bias and y included
  Dtype partial = Dtype::kFp32;       // how split-K partials are stored
  std::int64_t partials = 1;          // how many of them meet in one h element
  Dtype intermediate = Dtype::kFp32;  // how h is stored
  bool casts_h = false;       // h is rounded to the dtype of B (of eight bits, of y) before it is
                              // multiplied with it
  bool rounds_delta = false;  // delta is rounded to the output dtype before it is added to y
  BiasAdded bias_added = BiasAdded::kWithDelta;
  // Of results that `check` proves, which no backend declares: shards whose terms h is the sum of,
  // each kept as h is, as their sums may be; and y before the op, which was not rounded to its
  // dtype, so that it and delta are rounded once.
  std::int64_t terms_of_h = 1;
  bool rounds_once = false;
  bool deterministic = true;    // twice the same call, the same bits
  bool batch_invariant = true;  // a row's bits do not depend on the rows around it
  bool graph_safe = true;       // may be captured and replayed
  // What is captured serves every batch of as many tokens over these slots, whatever their ranks:
  // all that differs is read from the operands when it runs.
  bool replays_other_batches = false;
  std::string summation;  // one line for people

  [[nodiscard]] bool operator==(const Numerics&) const = default;
};

// What is declared beyond what any order of summation needs, as "shrink_depth = 900; allowed: 0 to
// 256"; "" when nothing is. A promise of nothing would let any result pass.
[[nodiscard]] std::string beyond_need(const Problem& problem, const Numerics& numerics);

// yes, or a sentence that becomes the row's SKIPPED message.
struct Support {
  bool yes = true;
  std::string why_not;
};

// Whether a backend that takes these beyond the plain op takes the step.
[[nodiscard]] Support takes_semantics(const Problem& problem, Semantics taken);

// A CUDA stream without its type; null for host backends.
struct Stream {
  void* handle = nullptr;
};

class FusedLayer;

// The arrays of one launch of an op without products, in the order of the problem's inputs_of and
// outputs_of.
struct ArrayOperands {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

// Makes the outputs of such an op. A launch may be captured and replayed: it depends on the problem
// and the addresses alone, and writes every entry that is promised.
template <typename ArrayProblem>
class ArrayMaker {
 public:
  virtual ~ArrayMaker() = default;
  [[nodiscard]] virtual Support supports(const ArrayProblem& problem,
                                         const DeviceFacts& device) const = 0;
  virtual void launch(const ArrayProblem& problem, const ArrayOperands& operands,
                      Stream stream) const = 0;
};
// Makes the index arrays of a step.
using MetadataBuilder = ArrayMaker<MetadataProblem>;
// Makes codes of eight bits and scales of x.
using Quantiser = ArrayMaker<QuantiseProblem>;

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::string_view summary() const = 0;  // one line for `list`
  [[nodiscard]] virtual Space space() const = 0;
  [[nodiscard]] virtual Support supports(const Problem& problem,
                                         const DeviceFacts& device) const = 0;
  [[nodiscard]] virtual Numerics numerics(const Problem& problem) const = 0;
  [[nodiscard]] virtual std::int64_t workspace_bytes(const Problem& problem) const = 0;
  // Bytes in which the backend keeps the weights of a set of operands as it wants them; 0: it takes
  // them as they lie. `prepare` makes them there, `operands.prepared`, from weights, ranks and
  // scales, which are all that it is given. It is called before the first launch, and after any of
  // these has changed, in no time that is taken: engines do that when they load an adapter.
  [[nodiscard]] virtual std::int64_t prepared_bytes(const Problem&) const { return 0; }
  virtual void prepare(const Problem&, const Operands&, Stream) const {}
  // Does the op, or enqueues it on `stream`; nothing may depend on host memory after it returns.
  // Throws CaseError; throws EnvironmentError when the device is lost.
  virtual void launch(const Problem& problem, const Operands& operands, Stream stream) const = 0;
  // Whether a launch costs the host so much that a sequence of thousands repeats a few recordings.
  [[nodiscard]] virtual bool slow_to_launch() const { return false; }
  // Whether shrink sets h to zero first, and that alone: for the phase columns.
  [[nodiscard]] virtual bool zeroes(const Problem&) const { return false; }
  virtual void launch_zero(const Problem&, const Operands&, Stream) const {}
  // Of a base product (ops/fused_layer.h): what launches it with its adapters; null: nothing does.
  [[nodiscard]] virtual const FusedLayer* fused() const { return nullptr; }
  // What makes op metadata, which no other member is asked of; null: nothing does.
  [[nodiscard]] virtual const MetadataBuilder* metadata() const { return nullptr; }
  // The same of op quantise.
  [[nodiscard]] virtual const Quantiser* quantiser() const { return nullptr; }
};

// Does as another backend does, but for what a class of its own overrides. It zeroes, fuses, makes
// metadata and quantises only where such a class says so. The other must outlive it.
class BackendAround : public Backend {
 public:
  explicit BackendAround(const Backend& inner) : inner_(inner) {}
  [[nodiscard]] std::string_view name() const override { return inner_.name(); }
  [[nodiscard]] std::string_view summary() const override { return inner_.summary(); }
  [[nodiscard]] Space space() const override { return inner_.space(); }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    return inner_.supports(problem, device);
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return inner_.numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return inner_.workspace_bytes(problem);
  }
  [[nodiscard]] std::int64_t prepared_bytes(const Problem& problem) const override {
    return inner_.prepared_bytes(problem);
  }
  void prepare(const Problem& problem, const Operands& operands, Stream stream) const override {
    inner_.prepare(problem, operands, stream);
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    inner_.launch(problem, operands, stream);
  }
  [[nodiscard]] bool slow_to_launch() const override { return inner_.slow_to_launch(); }

 protected:
  [[nodiscard]] const Backend& inner() const { return inner_; }

 private:
  const Backend& inner_;
};

// Whether the backend makes the metadata, or a sentence.
[[nodiscard]] Support metadata_support(const Backend& backend, const MetadataProblem& problem,
                                       const DeviceFacts& device);
// The same of op quantise.
[[nodiscard]] Support quantise_support(const Backend& backend, const QuantiseProblem& problem,
                                       const DeviceFacts& device);

// Every backend by name, in the order of `list`. `mutant:FAULT` and `fake:BEHAVIOUR` are not here:
// run/select.h resolves them too (see verify/mutants.h and ops/fake.h).
struct BackendEntry {
  std::string name;
  std::string summary;       // one line for `list`
  std::string why_not_here;  // "" = usable on this machine with this build
  std::function<std::unique_ptr<Backend>()> make;
};
[[nodiscard]] const std::vector<BackendEntry>& backend_registry();

}  // namespace lora_bench
