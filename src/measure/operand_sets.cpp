#include "measure/operand_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/dtype.h"
#include "workload/excerpt.h"

namespace lora_bench {
namespace {

constexpr std::size_t kMostPoisoned = 64;
// Bytes of inputs that are compared after timing, beyond one whole set.
constexpr std::int64_t kMostCompared = std::int64_t{32} << 20;

std::string difference(const char* name, const GuardedBuffer& buffer,
                       const std::vector<std::byte>& source) {
  const std::vector<std::byte> now = buffer.download();
  if (source.empty() || std::memcmp(now.data(), source.data(), source.size()) == 0) {
    return "";
  }
  const auto first = std::mismatch(source.begin(), source.end(), now.begin()).first;
  return fmt::format("input {} was changed, first at byte {}", name, first - source.begin());
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
  Operands operands;
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

void* OperandSets::keep_array(const char* name, const void* from, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  Kept kept;
  kept.name = name;
  kept.buffer = GuardedBuffer(memory_, static_cast<std::int64_t>(bytes));
  kept.source.assign(first, first + bytes);
  return keep(std::move(kept));
}

void OperandSets::add_plan(Operands& operands) {
  const auto ids = [&](const char* name, const std::vector<std::int32_t>& values) {
    return static_cast<const std::int32_t*>(
        keep_array(name, values.data(), values.size() * sizeof(std::int32_t)));
  };
  operands.adapter_of_token = ids("adapter_of_token", problem_.plan.adapter_of_token);
  operands.token_order = ids("token_order", problem_.plan.token_order);
  operands.active_ids = ids("active_ids", active_ids_of(problem_));
  operands.group_starts = ids("group_starts", group_starts_of(problem_));
  operands.rank = ids("rank", {problem_.rank.begin(), problem_.rank.end()});
  operands.scale = static_cast<const float*>(
      keep_array("scale", tensors_.scale.data(), tensors_.scale.size() * sizeof(float)));
}

std::vector<std::byte> OperandSets::weights_of(const Kept& kept, const Slots& slots) const {
  const std::size_t slot_bytes =
      kept.weights->data.size() / static_cast<std::size_t>(problem_.slots);
  std::vector<std::byte> weights(static_cast<std::size_t>(slots.end - slots.first) * slot_bytes);
  for (std::int64_t slot = slots.first; slot < slots.end; ++slot) {
    copy_turned_slot(*kept.weights, problem_.slots, slot, kept.set,
                     weights.data() + static_cast<std::size_t>(slot - slots.first) * slot_bytes);
  }
  return weights;
}

void OperandSets::upload_weights(const Kept& kept) {
  const std::int64_t slot_bytes = kept.buffer.bytes() / problem_.slots;
  for (const Slots& slots : used_) {
    const std::vector<std::byte> weights = weights_of(kept, slots);
    memory_.copy_in(static_cast<std::byte*>(kept.buffer.data()) + slots.first * slot_bytes,
                    weights.data(), static_cast<std::int64_t>(weights.size()));
  }
}

// The slots that nobody uses hold what they held from the start.
std::vector<std::byte> OperandSets::all_weights_of(const Kept& kept) const {
  std::vector<std::byte> weights(kept.weights->data.size(), GuardedBuffer::kPoison);
  const std::int64_t slot_bytes = kept.buffer.bytes() / problem_.slots;
  for (const Slots& slots : used_) {
    const std::vector<std::byte> used = weights_of(kept, slots);
    std::copy(used.begin(), used.end(), weights.begin() + slots.first * slot_bytes);
  }
  return weights;
}

void OperandSets::add_weights(Operands& operands, std::int64_t set) {
  const auto all = [&](const char* name, const std::vector<HostTensor>& tensors, bool of_expand) {
    std::vector<const void*> addresses;
    for (const HostTensor& tensor : tensors) {
      const auto bytes = static_cast<std::int64_t>(tensor.data.size());
      addresses.push_back(
          bytes == 0 ? nullptr
                     : keep({GuardedBuffer(memory_, bytes), name, &tensor, set, of_expand, {}}));
    }
    addresses.resize(problem_.widths.size(), nullptr);
    return addresses;
  };
  operands.a = all("A", tensors_.a, false);
  operands.b = all("B", tensors_.b, true);
  operands.bias = all("bias", tensors_.bias, true);
}

void OperandSets::add_activations(Operands& operands, std::int64_t workspace_bytes) {
  x_.emplace_back(memory_, static_cast<std::int64_t>(tensors_.x.data.size()));
  operands.x = tensors_.x.data.empty() ? nullptr : x_.back().data();
  operands.workspace = nullptr;
  if (workspace_bytes > 0) {
    operands.workspace =
        keep({GuardedBuffer(memory_, workspace_bytes), "the workspace", nullptr, 0, false, {}});
  }
  const std::int64_t h_bytes = operand_sizes(problem_).h * size_bytes(problem_.intermediate);
  h_.emplace_back(memory_, h_bytes);
  operands.h = h_bytes == 0 ? nullptr : h_.back().data();
  y_.emplace_back(memory_, static_cast<std::int64_t>(tensors_.y.data.size()));
  y_.back().upload(tensors_.y.data);
  operands.y = tensors_.y.data.empty() ? nullptr : y_.back().data();
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
  renew("adapter_of_token", problem.plan.adapter_of_token);
  renew("token_order", problem.plan.token_order);
  renew("active_ids", active_ids_of(problem));
  renew("group_starts", group_starts_of(problem));
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

std::vector<std::byte> OperandSets::download_output(std::int64_t output) const {
  memory_.synchronize();
  const auto index = static_cast<std::size_t>(output);
  return has_expand(problem_.op) ? y_[index].download() : h_[index].download();
}

std::string OperandSets::damage() const {
  const auto told = [](const char* name, const GuardedBuffer& buffer) {
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
        found = difference(kept->name, kept->buffer, all_weights_of(*kept));
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
