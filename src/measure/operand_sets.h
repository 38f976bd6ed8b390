#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/memory.h"
#include "ops/backend.h"
#include "scenario/case.h"
#include "workload/tensors.h"

namespace lora_bench {

// The operands of one step, as many times as the cache mode rotates them: the same numbers at
// other addresses. What does not rotate is shared.
class OperandSets {
 public:
  OperandSets(Memory& memory, const Problem& problem, const Tensors& tensors, CacheMode cache,
              std::int64_t sets, std::int64_t workspace_bytes);

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(operands_.size()); }
  [[nodiscard]] const Operands& operands(std::int64_t set) const {
    return operands_[static_cast<std::size_t>(set)];
  }
  [[nodiscard]] std::int64_t outputs() const { return static_cast<std::int64_t>(y_.size()); }

  // y as it was drawn, everywhere.
  void restore_y();
  // The same for one output alone; h that the op writes is poisoned, so that what is read there
  // afterwards was written by the launch between.
  void prepare_check(std::int64_t output);
  // What the op reads by row, x or a given h, as `tensors` now has it.
  void renew_inputs();
  [[nodiscard]] std::vector<std::byte> output_of(std::int64_t output) const;
  // Of the guards around h and y; "" = none.
  [[nodiscard]] std::string damage() const;

 private:
  void* keep(std::int64_t bytes, const void* from);
  void* keep(const HostTensor& tensor);
  void add_plan(Operands& operands);
  void add_weights(Operands& operands);
  void add_activations(Operands& operands, std::int64_t workspace_bytes);

  Memory& memory_;
  const Problem& problem_;
  const Tensors& tensors_;
  std::vector<GuardedBuffer> buffers_;
  std::vector<GuardedBuffer> x_;
  std::vector<GuardedBuffer> h_;
  std::vector<GuardedBuffer> y_;
  std::vector<Operands> operands_;
};

}  // namespace lora_bench
