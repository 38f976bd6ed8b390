#include "measure/operand_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>

#include "core/bytes.h"
#include "core/dtype.h"
#include "ops/backends.h"
#include "workload/excerpt.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kMostPoisoned = 64;
// Bytes of inputs that are compared after timing, beyond one whole set.
constexpr std::int64_t kMostCompared = std::int64_t{32} << 20;

// Weights that lie so far apart are copied from where they lie; smaller ones together.
constexpr std::int64_t kCopiedAlone = std::int64_t{256} << 10;
// Bytes that one thread copies or compares in one go, where there are more of them.
constexpr std::int64_t kBytesOfAThread = std::int64_t{1} << 20;

bool of_expand(const HeldOperand& held) { return held.is(Role::kB) || held.is(Role::kBias); }

std::string changed_at(const std::string& name, std::int64_t byte) {
  return fmt::format("input {} was changed, first at byte {}", name, byte);
}

// Of the bytes; as many as there are where none differs.
std::int64_t first_not_poison(std::span<const std::byte> bytes) {
  if (!bytes.empty() && bytes.front() == GuardedBuffer::kPoison &&
      std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0) {
    return std::ssize(bytes);
  }
  return std::find_if(bytes.begin(), bytes.end(),
                      [](std::byte byte) { return byte != GuardedBuffer::kPoison; }) -
         bytes.begin();
}

}  // namespace

OperandSets::OperandSets(Memory& memory, const Problem& problem, const Tensors& tensors,
                         const Backend& backend, CacheMode cache, std::int64_t sets)
    : memory_(memory),
      problem_(problem),
      tensors_(tensors),
      sets_(1, OperandSet(memory, problem, tensors,
                          OperandLayout{.workspace_bytes = backend.workspace_bytes(problem),
                                        .prepared_bytes = prepared_bytes(backend, problem),
                                        .poisoned_weights = true})),
      spare_(memory, problem, tensors, backend, sets_.front()) {
  for (const std::int64_t slot : problem.plan.active_ids) {
    if (used_.empty() || used_.back().end != slot) {
      used_.push_back({slot, slot});
    }
    ++used_.back().end;
  }
  sets_.reserve(static_cast<std::size_t>(sets));
  while (count() < sets) {
    sets_.push_back(
        sets_.front().again(tensors, cache != CacheMode::kHot, cache == CacheMode::kCold));
  }
  outputs_ = cache == CacheMode::kCold ? sets : 1;
  for (std::int64_t set = 0; set < sets; ++set) {
    renew_weights(set);
  }
}

void OperandSets::for_own(std::int64_t set,
                          const std::function<void(const HeldOperand&)>& act) const {
  for (const HeldOperand& held : at(set).held()) {
    if (held.buffer != nullptr && !held.shared) {
      act(held);
    }
  }
}

void OperandSets::for_each(
    const std::function<void(std::int64_t set, const HeldOperand&)>& act) const {
  for (std::int64_t set = 0; set < count(); ++set) {
    for_own(set, [&](const HeldOperand& held) { act(set, held); });
  }
}

std::int64_t OperandSets::slot_bytes_of(const HeldOperand& held) const {
  return held.bytes / problem_.slots;
}

void OperandSets::upload_slots(const HeldOperand& held, std::int64_t set, const Slots& slots) {
  const Weights weights{problem_, held.operand->role, tensors_.of(*held.operand)};
  const std::int64_t slot_bytes = slot_bytes_of(held);
  auto* const to = static_cast<std::byte*>(held.buffer->data()) + slots.first * slot_bytes;
  const std::int64_t bytes = (slots.end - slots.first) * slot_bytes;
  if (set == 0) {  // as they lie in the tensor
    memory_.copy_in(to, weights.tensor.data.data() + slots.first * slot_bytes, bytes);
    return;
  }
  if (slot_bytes >= kCopiedAlone) {
    for (std::int64_t slot = slots.first; slot < slots.end; ++slot) {
      std::byte* piece_to = to + (slot - slots.first) * slot_bytes;
      for (const std::span<const std::byte> piece : turned_slot(weights, slot, set)) {
        memory_.copy_in(piece_to, piece.data(), std::ssize(piece));
        piece_to += std::ssize(piece);
      }
    }
    return;
  }
  resize_bytes(room_, bytes);
  const std::int64_t of_thread = std::max<std::int64_t>(1, kBytesOfAThread / slot_bytes);
  for_blocks(slots.end - slots.first, of_thread, 0, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t slot = begin; slot < end; ++slot) {
      copy_turned_slot(weights, slots.first + slot, set, room_.data() + slot * slot_bytes);
    }
  });
  memory_.copy_in(to, room_.data(), bytes);
}

void OperandSets::upload_weights(const HeldOperand& held, std::int64_t set) {
  for (const Slots& slots : used_) {
    upload_slots(held, set, slots);
  }
}

// The slots that nobody uses hold what they held from the start.
std::string OperandSets::changed_weights(const HeldOperand& held, std::int64_t set) const {
  const Weights weights{problem_, held.operand->role, tensors_.of(*held.operand)};
  held.buffer->download_to(room_);
  const std::int64_t slot_bytes = slot_bytes_of(held);
  std::vector<char> is_used(static_cast<std::size_t>(problem_.slots));
  for (const Slots& slots : used_) {
    std::fill(is_used.begin() + slots.first, is_used.begin() + slots.end, 1);
  }
  // Of each slot the first byte that differs.
  std::vector<std::int64_t> differs(is_used.size(), slot_bytes);
  const std::int64_t of_thread = std::max<std::int64_t>(1, kBytesOfAThread / slot_bytes);
  for_blocks(problem_.slots, of_thread, 0, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t slot = begin; slot < end; ++slot) {
      const auto index = static_cast<std::size_t>(slot);
      std::span<const std::byte> now = std::span(room_).subspan(
          index * static_cast<std::size_t>(slot_bytes), static_cast<std::size_t>(slot_bytes));
      if (is_used[index] == 0) {
        differs[index] = first_not_poison(now);
        continue;
      }
      for (const std::span<const std::byte> piece : turned_slot(weights, slot, set)) {
        const std::span<const std::byte> here = now.first(piece.size());
        if (!piece.empty() && std::memcmp(here.data(), piece.data(), piece.size()) != 0 &&
            differs[index] == slot_bytes) {
          differs[index] =
              slot_bytes - std::ssize(now) +
              (std::mismatch(piece.begin(), piece.end(), here.begin()).first - piece.begin());
        }
        now = now.subspan(piece.size());
      }
    }
  });
  for (std::size_t slot = 0; slot < differs.size(); ++slot) {
    if (differs[slot] < slot_bytes) {
      return changed_at(held.name, static_cast<std::int64_t>(slot) * slot_bytes + differs[slot]);
    }
  }
  return "";
}

void OperandSets::restore_y() {
  for (std::int64_t output = 0; output < outputs(); ++output) {
    restore_y(output);
  }
}

void OperandSets::restore_y(std::int64_t output) {
  if (const HeldOperand& y = at(output).of(Role::kY); y.buffer != nullptr) {
    y.buffer->upload(tensors_.y.data);
  }
}

void OperandSets::poison_h() {
  for (std::int64_t turn = 0; turn < std::min(outputs(), kMostPoisoned); ++turn) {
    const HeldOperand& h = at(next_h_++ % outputs()).of(Role::kH);
    if (!h.input && h.buffer != nullptr) {
      h.buffer->poison();
    }
  }
}

void OperandSets::poison_every_h() {
  for_each([](std::int64_t /*set*/, const HeldOperand& held) {
    if (held.is(Role::kH) && !held.input) {
      held.buffer->poison();
    }
  });
}

void OperandSets::renew_inputs() {
  for_each([&](std::int64_t /*set*/, const HeldOperand& held) {
    if (held.operand && held.input && !held.is_weights()) {
      held.buffer->upload(tensors_.of(*held.operand).data);
    }
  });
}

void OperandSets::renew_batch(const Problem& problem) {
  const std::vector<IndexArray> arrays = index_arrays_of(problem);
  for_own(0, [&](const HeldOperand& held) {
    if (held.name == "scale") {
      held.buffer->upload(tensors_.scale.data(), held.bytes);
    }
    for (const IndexArray& array : arrays) {
      if (held.name == array.name) {
        held.buffer->upload(array.values.data(), held.bytes);
      }
    }
  });
}

void OperandSets::renew_weights(std::int64_t set) {
  for_own(set, [&](const HeldOperand& held) {
    if (held.is_weights()) {
      upload_weights(held, set);
    }
  });
  prepare(set);
}

void OperandSets::prepare(std::int64_t set) {
  if (prepares()) {
    spare_.take(at(set));
    spare_.prepare();
    spare_.hand_to(at(set));
  }
}

void OperandSets::prepare_others(std::int64_t set, const Replaced& numbers, bool without_expand) {
  spare_.take(at(set));
  for (const HeldOperand& held : spare_.set().held()) {
    if (held.buffer == nullptr) {
      continue;
    }
    if (without_expand && of_expand(held)) {
      held.buffer->clear();
    }
    for (const OldNumber& number : numbers) {
      if (held.is_weights() && number.tensor == &tensors_.of(*held.operand)) {
        write(held, set, number);
      }
    }
  }
  spare_.prepare();
}

void OperandSets::write(const HeldOperand& held, std::int64_t set, const OldNumber& number) {
  const HostTensor& tensor = *number.tensor;
  const std::int64_t bytes = held.element_bytes;
  const std::int64_t place =
      held.is_weights() ? element_of_set({problem_, held.operand->role, tensor}, set, number.index)
                        : number.index;
  memory_.copy_in(static_cast<std::byte*>(held.buffer->data()) + place * bytes,
                  tensor.data.data() + number.index * bytes, bytes);
}

void OperandSets::renew_expand(std::int64_t set) {
  for_own(set, [&](const HeldOperand& held) {
    if (of_expand(held)) {
      upload_weights(held, set);
    }
  });
  prepare(set);
}

void OperandSets::clear_expand(std::int64_t set) {
  for_own(set, [](const HeldOperand& held) {
    if (of_expand(held)) {
      held.buffer->clear();
    }
  });
  prepare(set);
}

void OperandSets::clear_expand() {
  for (std::int64_t set = 0; set < count(); ++set) {
    clear_expand(set);
  }
}

void OperandSets::renew(std::int64_t set, const Replaced& numbers) {
  bool of_weights = false;
  for_each([&](std::int64_t owner, const HeldOperand& held) {
    if (!held.operand || (held.is_weights() && owner != set)) {
      return;
    }
    const HostTensor& tensor = tensors_.of(*held.operand);
    for (const OldNumber& number : numbers) {
      if (number.tensor == &tensor) {
        of_weights = of_weights || held.is_weights();
        write(held, set, number);
      }
    }
  });
  if (of_weights) {  // what prepares them must not learn that other operands are new
    prepare(set);
  }
}

std::byte* OperandSets::inputs_of_set(std::int64_t set) const {
  const HeldOperand& rows = at(set).of(has_shrink(problem_.op) ? Role::kX : Role::kH);
  return static_cast<std::byte*>(rows.data());
}

std::byte* OperandSets::output_of(std::int64_t set) const {
  return static_cast<std::byte*>(at(set).output().data());
}

void OperandSets::download_output(std::int64_t output, std::vector<std::byte>& to) const {
  memory_.synchronize();
  if (const HeldOperand& written = at(output).output(); written.buffer != nullptr) {
    written.buffer->download_to(to);
  } else {
    to.clear();
  }
}

std::string OperandSets::damage() const {
  memory_.synchronize();
  for (const OperandSet& set : sets_) {
    if (std::string damage = set.damage(); !damage.empty()) {
      return damage;
    }
  }
  return spare_.damage();
}

std::string OperandSets::changed(const HeldOperand& held) const {
  const OperandSet::Contents before = sets_.front().contents(held, tensors_);
  const auto* const source = static_cast<const std::byte*>(before.data);
  held.buffer->download_to(room_);
  if (same_bytes(room_.data(), source, held.bytes)) {
    return "";
  }
  return changed_at(held.name,
                    std::mismatch(room_.begin(), room_.end(), source).first - room_.begin());
}

std::string OperandSets::changed_inputs(std::int64_t first_set) {
  memory_.synchronize();
  std::string found;
  for_own(0, [&](const HeldOperand& held) {
    if (found.empty() && !held.operand && held.input) {
      found = changed(held);
    }
  });
  std::int64_t compared = 0;
  for (std::int64_t turn = 0;
       found.empty() && turn < count() && (turn == 0 || compared < kMostCompared); ++turn) {
    const std::int64_t set = (first_set + turn) % count();
    for (const HeldOperand& held : at(set).held()) {
      // What sets share is compared once.
      const bool looked_at =
          held.buffer != nullptr && held.operand && held.input && (turn == 0 || !held.shared);
      if (looked_at && found.empty()) {
        found = held.is_weights() ? changed_weights(held, held.shared ? 0 : set) : changed(held);
        compared += held.bytes;
      }
    }
    if (found.empty() && prepares()) {
      found = spare_.changed(at(set));
    }
  }
  return found;
}

}  // namespace lora_bench
