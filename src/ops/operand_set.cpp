#include "ops/operand_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "core/random.h"

namespace lora_bench {
namespace {

constexpr const char* kWorkspace = "workspace";
constexpr const char* kScale = "scale";

HeldOperand held_of(StoredOperand stored) {
  const Operand& operand = stored.whole;
  HeldOperand held;
  held.name = label(operand);
  held.operand = operand;
  held.element_bytes = size_bytes(operand.dtype);
  held.bytes = operand.bytes();
  held.input = !operand.written;
  if (!stored.as_tensor) {
    held.stored = std::make_shared<const StoredOperand>(std::move(stored));
  }
  return held;
}

// Whether elements of nobody lie between rows that the op writes.
bool has_gaps(const HeldOperand& held) {
  return held.stored != nullptr && !held.input && held.stored->pitch > held.stored->lanes;
}

HeldOperand held_apart(const std::string& name, std::int64_t elements, std::int64_t element_bytes,
                       bool input) {
  HeldOperand held;
  held.name = name;
  held.element_bytes = element_bytes;
  held.bytes = elements * element_bytes;
  held.input = input;
  return held;
}

}  // namespace

std::string damaged_guard(const std::string& operand, const std::string& damage) {
  return fmt::format("guard of {} damaged: {}", operand, damage);
}

OperandSet::OperandSet(Memory& memory, const Problem& problem, const Tensors& tensors,
                       const OperandLayout& layout)
    : memory_(&memory), layout_(layout) {
  reload(problem, tensors);
}

OperandSet OperandSet::again(const Tensors& tensors, bool own_weights, bool own_rows) const {
  OperandSet set = *this;
  for (HeldOperand& held : set.held_) {
    const bool of_weights = held.is_weights() || held.name == kPrepared;
    held.shared =
        of_weights ? !own_weights : !own_rows || !(held.operand || held.name == kWorkspace);
    if (!held.shared) {
      held.buffer = nullptr;
    }
  }
  set.fill(tensors);
  set.point();
  return set;
}

void OperandSet::share_scratch(const OperandSet& other) {
  for (HeldOperand& held : held_) {
    for (const HeldOperand& lent : other.held_) {
      if (!held.input && held.name == lent.name && &held != &output()) {
        held.buffer = lent.buffer;
        held.shared = true;
      }
    }
  }
  point();
}

void OperandSet::reload(const Problem& problem, const Tensors& tensors) {
  std::vector<HeldOperand> before = std::exchange(held_, {});
  lay_out(problem, tensors);
  for (std::size_t index = 0; index < before.size(); ++index) {
    held_[index].buffer = std::move(before[index].buffer);
  }
  fill(tensors);
  operands_ = no_operands(problem);
  point();
}

// All that a launch is given, without buffers.
void OperandSet::lay_out(const Problem& problem, const Tensors& tensors) {
  output_ = has_expand(problem.op) ? Role::kY : Role::kH;
  for (StoredOperand& stored : stored_operands(problem)) {
    held_.push_back(held_of(std::move(stored)));
  }
  held_.push_back(held_apart(kWorkspace, layout_.workspace_bytes, 1, false));
  held_.push_back(held_apart(kPrepared, layout_.prepared_bytes, 1, false));
  arrays_ = std::make_shared<const std::vector<IndexArray>>(
      index_arrays_of(problem, layout_.plan_room == PlanRoom::kAllSlots ? problem.slots + 1 : 0));
  for (const IndexArray& array : *arrays_) {
    held_.push_back(held_apart(array.name, std::ssize(array.values), sizeof(std::int32_t), true));
    held_.back().place = &array - arrays_->data();
  }
  held_.push_back(held_apart(kScale, std::ssize(tensors.scale), sizeof(float), true));
}

// In elements.
std::int64_t OperandSet::shift_of(std::size_t index) const {
  const HeldOperand& held = held_[index];
  if (held.name == kWorkspace || held.name == kPrepared ||
      layout_.alignment == Alignment::kBoundary) {
    return 0;
  }
  if (layout_.alignment == Alignment::kElement) {
    return 1;
  }
  const bool shifted = random_below(layout_.draw / 2, 0, index, 2) == layout_.draw % 2;
  return shifted ? std::int64_t{1} << random_below(layout_.draw, 1, index, 4) : 0;
}

OperandSet::Contents OperandSet::contents(const HeldOperand& held, const Tensors& tensors) const {
  Contents contents;
  contents.filled_with = held.is_weights() ? GuardedBuffer::kPoison : tensors.scratch;
  if (held.operand) {
    const bool left_out = held.is_weights() && layout_.poisoned_weights;
    if (!held.operand->given || left_out) {
      if (has_gaps(held) && tensors.gap != tensors.scratch) {
        contents.own = bytes_with_gaps(*held.stored, tensors.scratch, tensors.gap);
        contents.data = contents.own.data();
      }
      return contents;
    }
    if (held.stored != nullptr) {
      contents.own = stored_bytes(*held.stored, tensors, tensors.gap);
    }
    contents.data =
        held.stored != nullptr ? contents.own.data() : tensors.of(*held.operand).data.data();
  } else if (held.name == kScale) {
    contents.data = tensors.scale.data();
  } else if (held.input) {
    contents.data = (*arrays_)[static_cast<std::size_t>(held.place)].values.data();
  }
  return contents;
}

std::vector<std::byte> OperandSet::output_of(std::vector<std::byte> buffer) const {
  const HeldOperand& held = output();
  return held.stored == nullptr || buffer.empty()
             ? std::move(buffer)
             : tensor_bytes_of(*held.stored, buffer, GuardedBuffer::kPoison);
}

void OperandSet::fill(const Tensors& tensors) {
  gap_ = tensors.gap;
  for (std::size_t index = 0; index < held_.size(); ++index) {
    HeldOperand& held = held_[index];
    if (held.bytes == 0) {
      held.buffer.reset();
    }
    if (held.bytes == 0 || held.shared) {
      continue;
    }
    const Contents held_before = contents(held, tensors);
    const void* const from = held_before.data;
    if (held.buffer == nullptr || held.buffer->bytes() != held.bytes) {
      held.buffer.reset();
      held.buffer = std::make_shared<GuardedBuffer>(*memory_, held.bytes,
                                                    shift_of(index) * held.element_bytes, from);
      if (from == nullptr && held_before.filled_with != GuardedBuffer::kPoison) {
        held.buffer->fill(held_before.filled_with);
      }
    } else if (from != nullptr) {
      held.buffer->upload(from, held.bytes);
    }
  }
}

void OperandSet::point() {
  for (const HeldOperand& held : held_) {
    void* const address = held.data();
    if (held.stored != nullptr) {
      for (const StoredPart& part : held.stored->parts) {
        operands_.point(part.operand, address == nullptr ? nullptr
                                                         : static_cast<std::byte*>(address) +
                                                               part.first * held.element_bytes);
      }
    } else if (held.operand) {
      operands_.point(*held.operand, address);
    } else if (held.name == kWorkspace) {
      operands_.workspace = address;
    } else if (held.name == kPrepared) {
      operands_.prepared = address;
    } else if (held.name == kScale) {
      operands_.scale = static_cast<const float*>(address);
    } else {
      operands_.*(*arrays_)[static_cast<std::size_t>(held.place)].address =
          static_cast<const std::int32_t*>(address);
    }
  }
}

const HeldOperand& OperandSet::of(Role role) const {
  for (const HeldOperand& held : held_) {
    if (held.is(role)) {
      return held;
    }
  }
  throw std::logic_error("no operand of this role");
}

std::string OperandSet::damage() const {
  for (const HeldOperand& held : held_) {
    const std::string damage = held.buffer == nullptr || held.shared ? "" : held.buffer->damage();
    if (!damage.empty()) {
      return damaged_guard(held.name, damage);
    }
  }
  return damage_of_gaps();
}

std::string OperandSet::damage_of_gaps() const {
  for (const HeldOperand& held : held_) {
    if (held.buffer == nullptr || held.shared || !has_gaps(held)) {
      continue;
    }
    const std::int64_t row = row_with_written_gap(*held.stored, held.buffer->download(), gap_);
    if (row >= 0) {
      return damaged_guard(held.name, fmt::format("the gap behind row {} was written", row));
    }
  }
  return "";
}

}  // namespace lora_bench
