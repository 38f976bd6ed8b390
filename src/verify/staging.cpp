#include "verify/staging.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/bytes.h"
#include "device/write_watch.h"

namespace lora_bench {

Stage::Stage(Memory& memory, const Problem& problem, const Tensors& tensors,
             const ScratchBytes& scratch, Alignment alignment, PlanRoom plan_room,
             std::uint64_t draw)
    : memory_(&memory),
      problem_(&problem),
      tensors_(&tensors),
      set_(memory, problem, tensors,
           {.workspace_bytes = scratch.workspace,
            .prepared_bytes = scratch.prepared,
            .alignment = alignment,
            .plan_room = plan_room,
            .draw = draw}) {}

void Stage::reload(const Problem& problem, const Tensors& tensors) {
  problem_ = &problem;
  tensors_ = &tensors;
  set_.reload(problem, tensors);
}

Stage Stage::again() const {
  Stage stage(*this);
  stage.set_ = set_.again(*tensors_, false, true);
  return stage;
}

std::vector<std::string> Stage::inputs() const {
  std::vector<std::string> names;
  for (const HeldOperand& held : set_.held()) {
    const std::string name = held.name.substr(0, held.name.find('['));
    const bool known = std::find(names.begin(), names.end(), name) != names.end();
    if (held.input && !held.is_of_plan() && held.buffer != nullptr && !known) {
      names.push_back(name);
    }
  }
  return names;
}

void Stage::change(std::string_view input, const Tensors& tensors) {
  for (const HeldOperand& held : set_.held()) {
    if (held.input && std::string_view(held.name).substr(0, held.name.find('[')) == input) {
      upload(held, tensors);
    }
  }
}

void Stage::upload(const HeldOperand& held, const Tensors& tensors) {
  if (held.buffer == nullptr) {
    return;
  }
  const OperandSet::Contents contents = set_.contents(held, tensors);
  if (contents.data != nullptr) {
    held.buffer->upload(contents.data, held.bytes);
  } else {
    held.buffer->fill(contents.filled_with);
  }
}

void Stage::restore_output() { upload(set_.output(), *tensors_); }

void Stage::restore_rows() {
  for (const HeldOperand& held : set_.held()) {
    if (held.operand && held.input && !held.is_weights()) {
      upload(held, *tensors_);
    }
  }
  restore_output();
}

void Stage::launch(const Backend& backend) {
  memory_->synchronize();
  enqueue(backend, Stream{});
  memory_->synchronize();
}

std::optional<OperandSet> Stage::prepare_elsewhere(const Backend& backend) {
  if (set_.operands().prepared == nullptr) {
    return std::nullopt;
  }
  OperandSet elsewhere = set_.again(*tensors_, true, false);
  memory_->synchronize();
  memory_->enqueue_and_wait([&](void* stream) {
    prepare_weights(backend, *problem_, elsewhere.operands(), Stream{stream});
  });
  for (std::size_t index = 0; index < set_.held().size(); ++index) {
    const HeldOperand& from = elsewhere.held()[index];
    if (from.name == kPrepared) {
      set_.held()[index].buffer->copy_from(*from.buffer);
    } else if (from.is_weights() && from.buffer != nullptr) {
      from.buffer->poison();
    }
  }
  return elsewhere;
}

Stage::Touched Stage::launch_watched(const Backend& backend) {
  const std::optional<OperandSet> elsewhere = prepare_elsewhere(backend);
  Touched touched;
  if (memory_->space() == Space::kHost) {
    touched = watch_launch(backend);
  } else {
    launch(backend);
  }
  touched.damage = elsewhere ? elsewhere->damage() : "";
  return touched;
}

Stage::Touched Stage::watch_launch(const Backend& backend) {
  std::vector<WriteWatch::Range> ranges;
  const auto is_read = [](const HeldOperand& held) { return held.input || held.name == kPrepared; };
  for (const HeldOperand& held : set_.held()) {
    if (is_read(held) && held.buffer != nullptr) {
      ranges.push_back({held.name, held.buffer->allocation()});
    }
  }
  const auto inputs = std::ssize(ranges);
  for (const HeldOperand& held : set_.held()) {
    if (!is_read(held) && held.buffer != nullptr) {
      const std::span<std::byte> all = held.buffer->allocation();
      auto* const start = static_cast<std::byte*>(held.buffer->data());
      ranges.push_back({"memory before " + held.name, {all.data(), start}});
      ranges.push_back(
          {"memory behind " + held.name, {start + held.bytes, all.data() + all.size()}});
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
      [&backend, beside, &problem = *problem_, operands = set_.operands()](void* stream) {
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
  if (set_.output().buffer != nullptr) {
    follower.output = GuardedBuffer(*memory_, set_.output().bytes);
  }
  for (const HeldOperand& held : set_.held()) {
    const OperandSet::Contents contents = set_.contents(held, tensors);
    const void* const from = contents.data;
    if (!held.operand || held.is_weights() || held.buffer == nullptr || from == nullptr) {
      continue;
    }
    follower.contents.emplace_back(*memory_, held.bytes, 0, from);
    follower.in_place.push_back({held.data(), follower.contents.back().data(), held.bytes});
  }
  return follower;
}

void Stage::enqueue_both(const Backend& backend, const Follower& follower, Load& load,
                         Stream stream) const {
  enqueue(backend, stream);
  load.begin(stream);
  enqueue_late_copies(*memory_, follower.in_place, stream);
  enqueue(backend, stream);
  const HeldOperand& output = set_.output();
  if (output.buffer != nullptr) {
    memory_->enqueue_copy(stream.handle, follower.output.data(), output.data(), output.bytes);
  }
  load.end(stream);
}

std::vector<std::byte> Stage::output() const {
  const HeldOperand& output = set_.output();
  return output.buffer == nullptr ? std::vector<std::byte>{}
                                  : set_.output_of(output.buffer->download());
}

std::string Stage::damage() const { return set_.damage(); }

Stage::Look Stage::look(Look before) const {
  Look look{{}, "", "", std::move(before.input)};
  for (const HeldOperand& held : set_.held()) {
    if (held.buffer == nullptr) {
      continue;
    }
    const bool is_output = &held == &set_.output();
    const bool scratch = !held.input && !is_output;
    GuardedBuffer::Look now =
        scratch ? GuardedBuffer::Look{held.buffer->damage(), {}}
                : held.buffer->look(std::move(is_output ? before.output : look.input));
    if (look.damage.empty() && !now.damage.empty()) {
      look.damage = damaged_guard(held.name, now.damage);
    }
    const bool changed = held.input && !same_bytes(now.contents.data(),
                                                   set_.contents(held, *tensors_).data, held.bytes);
    if (changed && look.changed_input.empty()) {
      look.changed_input = fmt::format("input {} changed", held.name);
    }
    if (is_output) {
      look.output = set_.output_of(std::move(now.contents));
    } else if (!scratch) {
      look.input = std::move(now.contents);
    }
  }
  if (look.damage.empty()) {
    look.damage = set_.damage_of_gaps();
  }
  return look;
}

}  // namespace lora_bench
