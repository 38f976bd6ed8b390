#pragma once

#include <optional>
#include <string>

#include "device/memory.h"
#include "ops/backend.h"
#include "ops/operand_set.h"

namespace lora_bench {

// Weights of a step at addresses of their own, beside those that are launched with. What a backend
// prepares is made here and copied to where a launch finds it, so that it cannot tell whose weights
// are new. Empty for a backend that prepares none.
class SpareWeights {
 public:
  // All of these but `tensors` are used until the object goes. `like` is a set of the step.
  SpareWeights(Memory& memory, const Problem& problem, const Tensors& tensors,
               const Backend& backend, const OperandSet& like);

  [[nodiscard]] bool empty() const { return !spare_.has_value(); }
  // Takes the weights of a set; what is changed in `set()` afterwards nobody launches with.
  void take(const OperandSet& set);
  [[nodiscard]] const OperandSet& set() const { return *spare_; }
  // Has the backend prepare what was taken.
  void prepare();
  // What was prepared last becomes that of a set.
  void hand_to(const OperandSet& set) const;
  // Whether a set holds what its weights are prepared as; "" or what is not so.
  [[nodiscard]] std::string changed(const OperandSet& set);
  // Of the guards.
  [[nodiscard]] std::string damage() const { return empty() ? "" : spare_->damage(); }

 private:
  Memory& memory_;
  const Problem& problem_;
  const Backend& backend_;
  std::optional<OperandSet> spare_;
};

}  // namespace lora_bench
