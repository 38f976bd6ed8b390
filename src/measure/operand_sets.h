#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/memory.h"
#include "measure/small_changes.h"
#include "ops/backend.h"
#include "scenario/case.h"
#include "workload/tensors.h"

namespace lora_bench {

// The operands of one step, as many times as the cache mode rotates them: at other addresses and,
// of the weights, with other numbers (see copy_turned_slot), so that what is remembered of one set
// is wrong for the next. What does not rotate is shared. Slots that no row uses hold NaN: of many
// slots there is then little to upload.
class OperandSets {
 public:
  OperandSets(Memory& memory, const Problem& problem, const Tensors& tensors, CacheMode cache,
              std::int64_t sets, std::int64_t workspace_bytes);

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(operands_.size()); }
  [[nodiscard]] const Operands& operands(std::int64_t set) const {
    return operands_[static_cast<std::size_t>(set)];
  }
  [[nodiscard]] std::int64_t outputs() const { return static_cast<std::int64_t>(y_.size()); }
  // The output that a set's launch writes.
  [[nodiscard]] std::int64_t output_of_set(std::int64_t set) const {
    return outputs() == 1 ? 0 : set;
  }

  // y as it was drawn, everywhere or in one output.
  void restore_y();
  void restore_y(std::int64_t output);
  // h that the op writes: what is read there afterwards was written by the launches between. Of
  // many only some in turn, as each is a call to the device.
  void poison_h();
  void poison_every_h();
  // What the op reads by row, x or a given h, as `tensors` now has it.
  void renew_inputs();
  // Who uses which adapter, and the scales, of a problem of the same sizes.
  void renew_batch(const Problem& problem);
  // What the op reads of the weights of one set.
  void renew_weights(std::int64_t set);
  // Of these numbers alone, of x, a given h or the weights, as `tensors` now has them.
  void renew(std::int64_t set, const Replaced& numbers);
  // B and bias of one set.
  void renew_expand(std::int64_t set);
  // B and bias of one set, or of all: launches of a set without them add nothing to y.
  void clear_expand(std::int64_t set);
  void clear_expand();
  // Rows that a set's launch reads, of x or a given h, and the output that it writes.
  [[nodiscard]] std::byte* inputs_of_set(std::int64_t set) const;
  [[nodiscard]] std::byte* output_of(std::int64_t set) const;
  void download_output(std::int64_t output, std::vector<std::byte>& to) const;

  // Of the guards around every operand; "" = none.
  [[nodiscard]] std::string damage() const;
  // Whether the inputs are still as they were uploaded: all that is small, and whole sets from
  // `first_set` on until enough bytes were compared; "" = they are.
  [[nodiscard]] std::string changed_inputs(std::int64_t first_set) const;

 private:
  // An operand that is not written, or scratch.
  struct Kept {
    GuardedBuffer buffer;
    std::string name;
    const HostTensor* weights = nullptr;  // of which it holds those of `set`
    std::int64_t set = 0;
    bool of_expand = false;         // B or bias
    std::vector<std::byte> source;  // of all but weights and scratch
  };

  // From `first` to before `end`.
  struct Slots {
    std::int64_t first = 0, end = 0;
  };

  void* keep(Kept kept);
  void* keep_array(const std::string& name, const void* from, std::size_t bytes);
  [[nodiscard]] std::int64_t slot_bytes_of(const Kept& kept) const;
  void upload_weights(const Kept& kept);
  void upload_slots(const Kept& kept, const Slots& slots);
  [[nodiscard]] std::string changed_weights(const Kept& kept) const;
  [[nodiscard]] std::string changed_rows(std::int64_t output) const;
  [[nodiscard]] std::string difference(const std::string& name, const GuardedBuffer& buffer,
                                       const std::vector<std::byte>& source) const;
  // Of x, h or y.
  [[nodiscard]] std::vector<GuardedBuffer>& buffers_of(Role role) {
    return role == Role::kX ? x_ : role == Role::kH ? h_ : y_;
  }
  void add_plan(Operands& operands);
  void add_weights(Operands& operands, std::int64_t set);
  void add_activations(Operands& operands, std::int64_t workspace_bytes);

  Memory& memory_;
  const Problem& problem_;
  const Tensors& tensors_;
  std::vector<Slots> used_;  // by a row of the batch, ascending
  std::vector<Kept> kept_;
  std::vector<GuardedBuffer> x_;
  std::vector<GuardedBuffer> h_;
  std::vector<GuardedBuffer> y_;
  std::vector<Operands> operands_;
  std::size_t next_h_ = 0;
  mutable std::vector<std::byte> room_;  // for what is on its way; new memory takes longer
};

}  // namespace lora_bench
