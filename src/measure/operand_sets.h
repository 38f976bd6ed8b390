#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/memory.h"
#include "measure/small_changes.h"
#include "measure/spare_weights.h"
#include "ops/backend.h"
#include "ops/operand_set.h"
#include "scenario/case.h"
#include "workload/tensors.h"

namespace lora_bench {

// The operands of one step, as many times as the cache mode rotates them: at other addresses and,
// of the weights, with other numbers (see copy_turned_slot), so that what is remembered of one set
// is wrong for the next. What does not rotate is shared. Slots that no row uses hold NaN: of many
// slots there is then little to upload.
class OperandSets {
 public:
  // All of these are used until the object goes. The backend prepares the weights of each set
  // whenever they have changed.
  OperandSets(Memory& memory, const Problem& problem, const Tensors& tensors,
              const Backend& backend, CacheMode cache, std::int64_t sets);

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(sets_.size()); }
  [[nodiscard]] const Operands& operands(std::int64_t set) const { return at(set).operands(); }
  [[nodiscard]] std::int64_t outputs() const { return outputs_; }
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
  // Who uses which adapter, and the scales, of a problem of the same sizes. Prepared weights stay.
  void renew_batch(const Problem& problem);
  // What the op reads of the weights of one set.
  void renew_weights(std::int64_t set);
  // Of these numbers alone, of x, a given h or the weights, as `tensors` now has them.
  void renew(std::int64_t set, const Replaced& numbers);
  // B and bias of one set.
  void renew_expand(std::int64_t set);
  // Whether the backend prepares weights. Has it prepare some that nobody launches with: those of a
  // set with these numbers changed and, `without_expand`, neither B nor bias.
  [[nodiscard]] bool prepares() const { return !spare_.empty(); }
  void prepare_others(std::int64_t set, const Replaced& numbers, bool without_expand);
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
  // `first_set` on until enough bytes were compared, with what was prepared of them; "" = they are.
  [[nodiscard]] std::string changed_inputs(std::int64_t first_set);

 private:
  // From `first` to before `end`.
  struct Slots {
    std::int64_t first = 0, end = 0;
  };

  [[nodiscard]] const OperandSet& at(std::int64_t set) const {
    return sets_[static_cast<std::size_t>(set)];
  }
  // Calls `act` with every buffer once, and the first set that has it.
  void for_each(const std::function<void(std::int64_t set, const HeldOperand&)>& act) const;
  // The same for what `set` does not share with the first.
  void for_own(std::int64_t set, const std::function<void(const HeldOperand&)>& act) const;
  [[nodiscard]] std::int64_t slot_bytes_of(const HeldOperand& held) const;
  void upload_weights(const HeldOperand& held, std::int64_t set);
  void prepare(std::int64_t set);
  // Writes a number into weights of a set, or into rows.
  void write(const HeldOperand& held, std::int64_t set, const OldNumber& number);
  void upload_slots(const HeldOperand& held, std::int64_t set, const Slots& slots);
  [[nodiscard]] std::string changed_weights(const HeldOperand& held, std::int64_t set) const;
  [[nodiscard]] std::string changed(const HeldOperand& held) const;

  Memory& memory_;
  const Problem& problem_;
  const Tensors& tensors_;
  std::vector<Slots> used_;  // by a row of the batch, ascending
  std::vector<OperandSet> sets_;
  SpareWeights spare_;
  std::int64_t outputs_ = 1;
  std::int64_t next_h_ = 0;
  mutable std::vector<std::byte> room_;  // for what is on its way; new memory takes longer
};

}  // namespace lora_bench
