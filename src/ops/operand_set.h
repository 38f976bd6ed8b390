#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/memory.h"
#include "ops/operands.h"
#include "workload/stored.h"

namespace lora_bench {

// Where operands start: on 256-byte boundaries, or shifted by one element of their dtype, which is
// all the alignment that a backend may ask for (the workspace stays on a boundary). kSome: each
// shifted by 1, 2, 4 or 8 of them or not, as is drawn.
enum class Alignment : std::uint8_t { kBoundary, kElement, kSome };

// Room for the plan at hand, or for every plan of the problem's slots: active_ids then ends in -1,
// and group_starts repeats where the last group ends.
enum class PlanRoom : std::uint8_t { kExact, kAllSlots };

// How a set of operands lies in memory.
struct OperandLayout {
  std::int64_t workspace_bytes = 0;
  std::int64_t prepared_bytes = 0;  // see Backend::prepare
  Alignment alignment = Alignment::kBoundary;
  PlanRoom plan_room = PlanRoom::kExact;
  std::uint64_t draw = 0;  // of kSome an even one and the odd one after it shift what the other
                           // does not
  bool poisoned_weights = false;  // for a caller who uploads some of their slots
};

// The name of what Backend::prepare makes.
inline constexpr const char* kPrepared = "prepared";

// One array that a launch reads or writes, in a guarded buffer: an operand of the step, an array of
// the plan, the scales or the workspace.
struct HeldOperand {
  std::string name;                // "a[1]", "token_order", "scale", "workspace", "prepared"
  std::optional<Operand> operand;  // of the step; none for the others. Of all slices in one buffer
                                   // it is that buffer
  // Where its parts lie; null: it holds its operand as tensors have it.
  std::shared_ptr<const StoredOperand> stored;
  std::int64_t place = -1;  // among the arrays of the plan; -1: it is none of them
  std::int64_t element_bytes = 1;
  std::int64_t bytes = 0;
  bool input = false;                     // read by the op and not written
  bool shared = false;                    // with the set that this one was made from
  std::shared_ptr<GuardedBuffer> buffer;  // null where there are no bytes

  [[nodiscard]] void* data() const { return buffer == nullptr ? nullptr : buffer->data(); }
  [[nodiscard]] bool is(Role role) const { return operand && operand->role == role; }
  [[nodiscard]] bool is_of_plan() const { return place >= 0; }
  [[nodiscard]] bool is_weights() const { return operand && operand->per_slot; }
};

// Everything that one launch of a step is given, in guarded buffers of one memory. h (unless it is
// given) and the workspace start poisoned, or as `Tensors::scratch` says; y starts as the tensors
// have it.
class OperandSet {
 public:
  OperandSet(Memory& memory, const Problem& problem, const Tensors& tensors,
             const OperandLayout& layout);

  // A set of the same step that has its weights, its rows (x, h, y and the workspace) or both in
  // buffers of its own and shares the rest.
  [[nodiscard]] OperandSet again(const Tensors& tensors, bool own_weights, bool own_rows) const;
  // From now on h, where it is neither given nor the result, and the workspace are those of the
  // other set, which has room for them.
  void share_scratch(const OperandSet& other);
  // Another step in the same buffers: h and the workspace keep what the launches before left there.
  // A buffer whose size changes, which only those of the plan may, is made anew.
  void reload(const Problem& problem, const Tensors& tensors);

  [[nodiscard]] const Operands& operands() const { return operands_; }
  [[nodiscard]] const std::vector<HeldOperand>& held() const { return held_; }
  // Of a role that has one operand for all slices: x, h or y.
  [[nodiscard]] const HeldOperand& of(Role role) const;
  // What the op writes for its caller: y, or h of a shrink.
  [[nodiscard]] const HeldOperand& output() const { return of(output_); }
  // What a buffer holds before a launch; it refers to `tensors` or has made bytes of its own.
  struct Contents {
    std::vector<std::byte> own;
    const void* data = nullptr;  // null: every byte is `filled_with`
    std::byte filled_with{GuardedBuffer::kPoison};
  };
  [[nodiscard]] Contents contents(const HeldOperand& held, const Tensors& tensors) const;
  // The bytes of the output's buffer as tensors would have them.
  [[nodiscard]] std::vector<std::byte> output_of(std::vector<std::byte> buffer) const;
  // "" where the guards of all buffers but the shared ones and the gaps of h are intact, else
  // "guard of y damaged: ...".
  [[nodiscard]] std::string damage() const;
  // That of the gaps of h alone.
  [[nodiscard]] std::string damage_of_gaps() const;

 private:
  void lay_out(const Problem& problem, const Tensors& tensors);
  void fill(const Tensors& tensors);
  void point();
  [[nodiscard]] std::int64_t shift_of(std::size_t index) const;

  Memory* memory_ = nullptr;
  OperandLayout layout_;
  Role output_ = Role::kY;
  std::byte gap_{};  // what gaps of h hold
  std::shared_ptr<const std::vector<IndexArray>> arrays_;
  std::vector<HeldOperand> held_;
  Operands operands_;
};

// How damage to the guards of an operand is told.
[[nodiscard]] std::string damaged_guard(const std::string& operand, const std::string& damage);

}  // namespace lora_bench
