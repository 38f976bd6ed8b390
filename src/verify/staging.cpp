#include "verify/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/bytes.h"
#include "core/random.h"
#include "device/write_watch.h"

namespace lora_bench {
namespace {

std::string damaged(const std::string& operand, const std::string& damage) {
  return fmt::format("guard of {} damaged: {}", operand, damage);
}

template <typename Element>
std::int64_t count_of(const std::vector<Element>& elements) {
  return static_cast<std::int64_t>(elements.size());
}

}  // namespace

Stage::Stage(Memory& memory, const Problem& problem, const Tensors& tensors,
             std::int64_t workspace_bytes, Alignment alignment, PlanRoom plan_room,
             std::uint64_t draw)
    : memory_(&memory),
      problem_(&problem),
      tensors_(&tensors),
      workspace_bytes_(workspace_bytes),
      alignment_(alignment),
      plan_room_(plan_room),
      draw_(draw) {
  stage_all();
  point_operands();
}

void Stage::reload(const Problem& problem, const Tensors& tensors) {
  problem_ = &problem;
  tensors_ = &tensors;
  stage_all();
  point_operands();
}

void Stage::restore_output() {
  for (Staged& staged : staged_) {
    if (staged.buffer.bytes() == 0) {
      continue;
    }
    if (staged.name == "h" && !has_expand(problem_->op)) {
      staged.buffer.poison();
    }
    if (staged.name == "y") {
      staged.buffer.upload(tensors_->y.data);
    }
  }
}

void Stage::restore_rows() {
  for (const Operand& operand : operands_of(*problem_)) {
    if (!operand.per_slot && !operand.written && operand.elements > 0) {
      stage(label(operand), tensors_->of(operand).data.data(), operand.elements,
            size_bytes(operand.dtype));
    }
  }
  restore_output();
}

void Stage::stage_all() {
  for (const Operand& operand : operands_of(*problem_)) {
    const HostTensor& tensor = tensors_->of(operand);
    // An h that the op writes starts poisoned; y starts as the tensors have it.
    const bool starts_poisoned = operand.role == Role::kH && operand.written;
    stage(label(operand), starts_poisoned ? nullptr : tensor.data.data(),
          starts_poisoned ? operand.elements : tensor.elements, size_bytes(operand.dtype),
          !operand.written);
  }
  stage("workspace", nullptr, workspace_bytes_, 1, false);
  index_arrays_ =
      index_arrays_of(*problem_, plan_room_ == PlanRoom::kAllSlots ? problem_->slots + 1 : 0);
  for (const IndexArray& array : index_arrays_) {
    stage(array.name, array.values.data(), count_of(array.values), sizeof(std::int32_t));
  }
  stage("scale", tensors_->scale.data(), count_of(tensors_->scale), sizeof(float));
}

// In elements.
std::int64_t Stage::shift_of(const std::string& name, std::size_t place) const {
  if (name == "workspace" || alignment_ == Alignment::kBoundary) {
    return 0;
  }
  if (alignment_ == Alignment::kElement) {
    return 1;
  }
  const bool shifted = random_below(draw_ / 2, 0, place, 2) == draw_ % 2;
  return shifted ? std::int64_t{1} << random_below(draw_, 1, place, 4) : 0;
}

void Stage::stage(const std::string& name, const void* source, std::int64_t elements,
                  std::int64_t element_bytes, bool input) {
  const std::int64_t bytes = elements * element_bytes;
  auto found = std::find_if(staged_.begin(), staged_.end(),
                            [&](const Staged& staged) { return staged.name == name; });
  if (found == staged_.end()) {
    found = staged_.insert(staged_.end(), Staged{name, {}, nullptr});
  }
  if (found->buffer.bytes() != bytes) {
    const auto place = static_cast<std::size_t>(found - staged_.begin());
    const std::int64_t shift = shift_of(name, place) * element_bytes;
    found->buffer = bytes == 0 ? GuardedBuffer() : GuardedBuffer(*memory_, bytes, shift, source);
  } else if (source != nullptr && bytes > 0) {
    found->buffer.upload(source, bytes);
  }
  found->source = input ? source : nullptr;
}

void* Stage::address(const std::string& name) const {
  const auto found = std::find_if(staged_.begin(), staged_.end(),
                                  [&](const Staged& staged) { return staged.name == name; });
  return found->buffer.bytes() == 0 ? nullptr : found->buffer.data();
}

void Stage::point_operands() {
  operands_ = no_operands(*problem_);
  for (const Operand& operand : operands_of(*problem_)) {
    operands_.point(operand, address(label(operand)));
  }
  operands_.workspace = address("workspace");
  for (const IndexArray& array : index_arrays_) {
    operands_.*array.address = static_cast<const std::int32_t*>(address(array.name));
  }
  operands_.scale = static_cast<const float*>(address("scale"));
}

void Stage::launch(const Backend& backend) {
  memory_->synchronize();
  backend.launch(*problem_, operands_, Stream{});
  memory_->synchronize();
}

Stage::Touched Stage::launch_watched(const Backend& backend) {
  if (memory_->space() != Space::kHost) {
    launch(backend);
    return {};
  }
  std::vector<WriteWatch::Range> ranges;
  for (const Staged& staged : staged_) {
    const std::span<std::byte> all = staged.buffer.allocation();
    if (staged.source != nullptr && !all.empty()) {
      ranges.push_back({staged.name, all});
    }
  }
  const auto inputs = std::ssize(ranges);
  for (const Staged& staged : staged_) {
    const std::span<std::byte> all = staged.buffer.allocation();
    if (staged.source == nullptr && !all.empty()) {
      auto* const start = static_cast<std::byte*>(staged.buffer.data());
      ranges.push_back({"memory before " + staged.name, {all.data(), start}});
      ranges.push_back({"memory behind " + staged.name,
                        {start + staged.buffer.bytes(), all.data() + all.size()}});
    }
  }
  const std::vector<std::string> names = [&] {
    const WriteWatch watch(ranges);
    launch(backend);
    return watch.written();
  }();
  Touched touched;
  for (std::size_t index = ranges.size(); index-- > 0;) {
    if (std::find(names.begin(), names.end(), ranges[index].name) != names.end()) {
      (static_cast<std::int64_t>(index) < inputs ? touched.input : touched.outside) =
          ranges[index].name;
    }
  }
  return touched;
}

std::function<void()> Stage::record(const Backend& backend, Load* beside) {
  return memory_->record(
      [&backend, beside, &problem = *problem_, operands = operands_](void* stream) {
        if (beside != nullptr) {
          beside->begin(Stream{stream});
        }
        backend.launch(problem, operands, Stream{stream});
        if (beside != nullptr) {
          beside->end(Stream{stream});
        }
      });
}

Stage::Follower Stage::follower(const Tensors& tensors) const {
  Follower follower;
  for (const Operand& operand : operands_of(*problem_)) {
    const bool output = operand.role == (has_expand(problem_->op) ? Role::kY : Role::kH);
    const bool scratch = operand.role == Role::kH && operand.written;
    void* const place = address(label(operand));
    if (output && place != nullptr) {
      follower.output = GuardedBuffer(*memory_, operand.bytes());
    }
    if (operand.per_slot || scratch || place == nullptr) {
      continue;
    }
    follower.contents.emplace_back(*memory_, operand.bytes(), 0, tensors.of(operand).data.data());
    follower.in_place.push_back({place, follower.contents.back().data(), operand.bytes()});
  }
  return follower;
}

void Stage::enqueue_both(const Backend& backend, const Follower& follower, Load& load,
                         Stream stream) const {
  backend.launch(*problem_, operands_, stream);
  load.begin(stream);
  enqueue_late_copies(*memory_, follower.in_place, stream);
  backend.launch(*problem_, operands_, stream);
  const void* const output = has_expand(problem_->op) ? operands_.y : operands_.h;
  memory_->enqueue_copy(stream.handle, follower.output.data(), output, follower.output.bytes());
  load.end(stream);
}

std::vector<std::byte> Stage::output() const {
  const std::string name = has_expand(problem_->op) ? "y" : "h";
  for (const Staged& staged : staged_) {
    if (staged.name == name && staged.buffer.bytes() > 0) {
      return staged.buffer.download();
    }
  }
  return {};
}

std::string Stage::damage() const {
  for (const Staged& staged : staged_) {
    const std::string damage = staged.buffer.bytes() == 0 ? "" : staged.buffer.damage();
    if (!damage.empty()) {
      return damaged(staged.name, damage);
    }
  }
  return "";
}

Stage::Look Stage::look(Look before) const {
  Look look{{}, "", "", std::move(before.input)};
  const std::string output = has_expand(problem_->op) ? "y" : "h";
  for (const Staged& staged : staged_) {
    if (staged.buffer.bytes() == 0) {
      continue;
    }
    const bool is_output = staged.name == output;
    const bool scratch = staged.source == nullptr && !is_output;
    GuardedBuffer::Look now =
        scratch ? GuardedBuffer::Look{staged.buffer.damage(), {}}
                : staged.buffer.look(std::move(is_output ? before.output : look.input));
    if (look.damage.empty() && !now.damage.empty()) {
      look.damage = damaged(staged.name, now.damage);
    }
    const bool changed = staged.source != nullptr &&
                         !same_bytes(now.contents.data(), staged.source, std::ssize(now.contents));
    if (changed && look.changed_input.empty()) {
      look.changed_input = fmt::format("input {} changed", staged.name);
    }
    if (is_output) {
      look.output = std::move(now.contents);
    } else if (!scratch) {
      look.input = std::move(now.contents);
    }
  }
  return look;
}

}  // namespace lora_bench
