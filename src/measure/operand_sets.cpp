#include "measure/operand_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>

#include "core/bytes.h"
#include "core/dtype.h"
#include "workload/excerpt.h"

namespace lora_bench {
namespace {

constexpr std::size_t kMostPoisoned = 64;
// Bytes of inputs that are compared after timing, beyond one whole set.
constexpr std::int64_t kMostCompared = std::int64_t{32} << 20;

// Weights that lie so far apart are copied from where they lie; smaller ones together.
constexpr std::int64_t kCopiedAlone = std::int64_t{256} << 10;
// Bytes that one thread copies or compares in one go, where there are more of them.
constexpr std::int64_t kBytesOfAThread = std::int64_t{1} << 20;

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
                         CacheMode cache, std::int64_t sets, std::int64_t workspace_bytes)
    : memory_(memory), problem_(problem), tensors_(tensors) {
  for (const std::int64_t slot : problem.plan.active_ids) {
    if (used_.empty() || used_.back().end != slot) {
      used_.push_back({slot, slot});
    }
    ++used_.back().end;
  }
  Operands operands = no_operands(problem);
  add_plan(operands);
  for (std::int64_t set = 0; set < sets; ++set) {
    if (set == 0 || cache != CacheMode::kHot) {
      add_weights(operands, set);
    }
    if (set == 0 || cache == CacheMode::kCold) {
      add_activations(operands, workspace_bytes);
    }
    operands_.push_back(operands);
  }
  renew_inputs();
}

void* OperandSets::keep(Kept kept) {
  if (kept.buffer.bytes() == 0) {
    return nullptr;
  }
  if (kept.weights != nullptr) {
    upload_weights(kept);
  } else {
    kept.buffer.upload(kept.source);
  }
  kept_.push_back(std::move(kept));
  return kept_.back().buffer.data();
}

void* OperandSets::keep_array(const std::string& name, const void* from, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  Kept kept;
  kept.name = name;
  kept.buffer = GuardedBuffer(memory_, static_cast<std::int64_t>(bytes));
  kept.source.assign(first, first + bytes);
  return keep(std::move(kept));
}

void OperandSets::add_plan(Operands& operands) {
  for (const IndexArray& array : index_arrays_of(problem_)) {
    operands.*array.address = static_cast<const std::int32_t*>(
        keep_array(array.name, array.values.data(), array.values.size() * sizeof array.values[0]));
  }
  operands.scale = static_cast<const float*>(
      keep_array("scale", tensors_.scale.data(), tensors_.scale.size() * sizeof(float)));
}

std::int64_t OperandSets::slot_bytes_of(const Kept& kept) const {
  return kept.buffer.bytes() / problem_.slots;
}

void OperandSets::upload_slots(const Kept& kept, const Slots& slots) {
  const std::int64_t slot_bytes = slot_bytes_of(kept);
  auto* const to = static_cast<std::byte*>(kept.buffer.data()) + slots.first * slot_bytes;
  const std::int64_t bytes = (slots.end - slots.first) * slot_bytes;
  if (kept.set == 0) {  // as they lie in the tensor
    memory_.copy_in(to, kept.weights->data.data() + slots.first * slot_bytes, bytes);
    return;
  }
  if (slot_bytes >= kCopiedAlone) {
    for (std::int64_t slot = slots.first; slot < slots.end; ++slot) {
      std::byte* piece_to = to + (slot - slots.first) * slot_bytes;
      for (const std::span<const std::byte> piece :
           turned_slot(*kept.weights, problem_.slots, slot, kept.set)) {
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
      copy_turned_slot(*kept.weights, problem_.slots, slots.first + slot, kept.set,
                       room_.data() + slot * slot_bytes);
    }
  });
  memory_.copy_in(to, room_.data(), bytes);
}

void OperandSets::upload_weights(const Kept& kept) {
  for (const Slots& slots : used_) {
    upload_slots(kept, slots);
  }
}

// The slots that nobody uses hold what they held from the start.
std::string OperandSets::changed_weights(const Kept& kept) const {
  kept.buffer.download_to(room_);
  const std::int64_t slot_bytes = slot_bytes_of(kept);
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
      for (const std::span<const std::byte> piece :
           turned_slot(*kept.weights, problem_.slots, slot, kept.set)) {
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
      return changed_at(kept.name, static_cast<std::int64_t>(slot) * slot_bytes + differs[slot]);
    }
  }
  return "";
}

void OperandSets::add_weights(Operands& operands, std::int64_t set) {
  for (const Operand& operand : operands_of(problem_)) {
    if (!operand.per_slot) {
      continue;
    }
    const HostTensor& tensor = tensors_.of(operand);
    const auto bytes = static_cast<std::int64_t>(tensor.data.size());
    void* address = nullptr;
    if (bytes > 0) {
      address = keep({.buffer = GuardedBuffer(memory_, bytes),
                      .name = label(operand),
                      .weights = &tensor,
                      .set = set,
                      .of_expand = operand.role != Role::kA,
                      .source = {}});
    }
    operands.point(operand, address);
  }
}

void OperandSets::add_activations(Operands& operands, std::int64_t workspace_bytes) {
  for (const Operand& operand : operands_of(problem_)) {
    if (operand.per_slot) {
      continue;
    }
    std::vector<GuardedBuffer>& buffers = buffers_of(operand.role);
    buffers.emplace_back(memory_, operand.bytes());
    operands.point(operand, operand.elements == 0 ? nullptr : buffers.back().data());
  }
  y_.back().upload(tensors_.y.data);
  operands.workspace = nullptr;
  if (workspace_bytes > 0) {
    operands.workspace = keep({.buffer = GuardedBuffer(memory_, workspace_bytes),
                               .name = "the workspace",
                               .weights = nullptr,
                               .set = 0,
                               .of_expand = false,
                               .source = {}});
  }
}

void OperandSets::restore_y() {
  for (GuardedBuffer& y : y_) {
    y.upload(tensors_.y.data);
  }
}

void OperandSets::restore_y(std::int64_t output) {
  y_[static_cast<std::size_t>(output)].upload(tensors_.y.data);
}

void OperandSets::poison_h() {
  if (!has_shrink(problem_.op)) {
    return;
  }
  for (std::size_t turn = 0; turn < std::min(h_.size(), kMostPoisoned); ++turn) {
    h_[next_h_++ % h_.size()].poison();
  }
}

void OperandSets::poison_every_h() {
  for (GuardedBuffer& h : h_) {
    if (has_shrink(problem_.op)) {
      h.poison();
    }
  }
}

void OperandSets::renew_inputs() {
  for (GuardedBuffer& x : x_) {
    x.upload(tensors_.x.data);
  }
  for (GuardedBuffer& h : h_) {
    if (!has_shrink(problem_.op)) {
      h.upload(tensors_.h.data);
    }
  }
}

void OperandSets::renew_batch(const Problem& problem) {
  const auto renew = [&](std::string_view name, const auto& values) {
    for (Kept& kept : kept_) {
      if (kept.name == name) {
        kept.buffer.upload(values.data(),
                           static_cast<std::int64_t>(values.size() * sizeof values[0]));
      }
    }
  };
  for (const IndexArray& array : index_arrays_of(problem)) {
    renew(array.name, array.values);
  }
  renew("scale", tensors_.scale);
}

void OperandSets::renew_weights(std::int64_t set) {
  for (Kept& kept : kept_) {
    if (kept.weights != nullptr && kept.set == set) {
      upload_weights(kept);
    }
  }
}

void OperandSets::clear_expand(std::int64_t set) {
  for (Kept& kept : kept_) {
    if (kept.of_expand && kept.set == set) {
      kept.buffer.clear();
    }
  }
}

void OperandSets::clear_expand() {
  for (Kept& kept : kept_) {
    if (kept.of_expand) {
      kept.buffer.clear();
    }
  }
}

void OperandSets::renew(std::int64_t set, const Replaced& numbers) {
  const auto copy = [&](const GuardedBuffer& buffer, const OldNumber& number, std::int64_t place) {
    const std::int64_t bytes = size_bytes(number.tensor->dtype);
    memory_.copy_in(static_cast<std::byte*>(buffer.data()) + place * bytes,
                    number.tensor->data.data() + number.index * bytes, bytes);
  };
  for (const OldNumber& number : numbers) {
    if (number.tensor == &tensors_.x || number.tensor == &tensors_.h) {
      for (const GuardedBuffer& buffer : number.tensor == &tensors_.x ? x_ : h_) {
        copy(buffer, number, number.index);
      }
      continue;
    }
    for (const Kept& kept : kept_) {
      if (kept.weights == number.tensor && kept.set == set) {
        copy(kept.buffer, number,
             element_of_set(*number.tensor, problem_.slots, set, number.index));
      }
    }
  }
}

void OperandSets::renew_expand(std::int64_t set) {
  for (const Kept& kept : kept_) {
    if (kept.of_expand && kept.set == set) {
      upload_weights(kept);
    }
  }
}

std::byte* OperandSets::inputs_of_set(std::int64_t set) const {
  const auto index = static_cast<std::size_t>(output_of_set(set));
  return static_cast<std::byte*>((has_shrink(problem_.op) ? x_ : h_)[index].data());
}

std::byte* OperandSets::output_of(std::int64_t set) const {
  const auto index = static_cast<std::size_t>(output_of_set(set));
  return static_cast<std::byte*>((has_expand(problem_.op) ? y_ : h_)[index].data());
}

void OperandSets::download_output(std::int64_t output, std::vector<std::byte>& to) const {
  memory_.synchronize();
  const auto index = static_cast<std::size_t>(output);
  (has_expand(problem_.op) ? y_ : h_)[index].download_to(to);
}

std::string OperandSets::difference(const std::string& name, const GuardedBuffer& buffer,
                                    const std::vector<std::byte>& source) const {
  buffer.download_to(room_);
  if (source.empty() || same_bytes(room_.data(), source.data(), std::ssize(source))) {
    return "";
  }
  const auto first = std::mismatch(source.begin(), source.end(), room_.begin()).first;
  return changed_at(name, first - source.begin());
}

std::string OperandSets::damage() const {
  const auto told = [](const std::string& name, const GuardedBuffer& buffer) -> std::string {
    const std::string damage = buffer.damage();
    return damage.empty() ? "" : fmt::format("guard of {} damaged: {}", name, damage);
  };
  memory_.synchronize();
  for (std::size_t output = 0; output < y_.size(); ++output) {
    for (const std::string& found :
         {told("h", h_[output]), told("y", y_[output]), told("x", x_[output])}) {
      if (!found.empty()) {
        return found;
      }
    }
  }
  for (const Kept& kept : kept_) {
    if (std::string found = told(kept.name, kept.buffer); !found.empty()) {
      return found;
    }
  }
  return "";
}

std::string OperandSets::changed_rows(std::int64_t output) const {
  const auto index = static_cast<std::size_t>(output);
  std::string found = difference("x", x_[index], tensors_.x.data);
  if (found.empty() && !has_shrink(problem_.op)) {
    found = difference("h", h_[index], tensors_.h.data);
  }
  return found;
}

std::string OperandSets::changed_inputs(std::int64_t first_set) const {
  memory_.synchronize();
  std::vector<std::vector<const Kept*>> of_set(static_cast<std::size_t>(count()));
  for (const Kept& kept : kept_) {
    if (kept.weights != nullptr) {
      of_set[static_cast<std::size_t>(kept.set)].push_back(&kept);
    } else if (std::string found = difference(kept.name, kept.buffer, kept.source);
               !found.empty()) {
      return found;
    }
  }
  std::int64_t compared = 0;
  for (std::int64_t turn = 0; turn < count() && (turn == 0 || compared < kMostCompared); ++turn) {
    const std::int64_t set = (first_set + turn) % count();
    std::string found;
    if (turn == 0 || outputs() > 1) {
      found = changed_rows(output_of_set(set));
      compared += x_.front().bytes();
    }
    for (const Kept* kept : of_set[static_cast<std::size_t>(set)]) {
      if (found.empty()) {
        found = changed_weights(*kept);
        compared += kept->buffer.bytes();
      }
    }
    if (!found.empty()) {
      return found;
    }
  }
  return "";
}

}  // namespace lora_bench
