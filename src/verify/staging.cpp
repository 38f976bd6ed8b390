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

std::string indexed(const char* name, std::size_t slice) {
  return fmt::format("{}[{}]", name, slice);
}

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

void Stage::stage_all() {
  rank_.assign(problem_->rank.begin(), problem_->rank.end());
  stage("x", tensors_->x);
  for (std::size_t slice = 0; slice < problem_->widths.size(); ++slice) {
    stage(indexed("a", slice), tensors_->a[slice]);
    stage(indexed("b", slice), tensors_->b[slice]);
    stage(indexed("bias", slice), tensors_->bias[slice]);
  }
  const bool h_given = !has_shrink(problem_->op);
  const std::int64_t h_elements = operand_sizes(*problem_).h;
  stage("h", h_given ? tensors_->h.data.data() : nullptr, h_elements,
        size_bytes(problem_->intermediate), h_given);
  stage("y", tensors_->y, false);
  stage("workspace", nullptr, workspace_bytes_, 1, false);
  stage_plan();
  stage("rank", rank_.data(), count_of(rank_), 4);
  stage("scale", tensors_->scale.data(), count_of(tensors_->scale), 4);
}

void Stage::stage_plan() {
  const Plan& plan = problem_->plan;
  active_ids_ = active_ids_of(*problem_);
  group_starts_ = group_starts_of(*problem_);
  if (plan_room_ == PlanRoom::kAllSlots) {
    const auto slots = static_cast<std::size_t>(problem_->slots);
    active_ids_.resize(slots + 1, kNoAdapter);
    group_starts_.resize(slots + 2, static_cast<std::int32_t>(plan.rows_with_adapter()));
  }
  stage("adapter_of_token", plan.adapter_of_token.data(), count_of(plan.adapter_of_token), 4);
  stage("token_order", plan.token_order.data(), count_of(plan.token_order), 4);
  stage("active_ids", active_ids_.data(), count_of(active_ids_), 4);
  stage("group_starts", group_starts_.data(), count_of(group_starts_), 4);
}

void Stage::stage(const std::string& name, const HostTensor& tensor, bool input) {
  stage(name, tensor.data.data(), tensor.elements, size_bytes(tensor.dtype), input);
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
  operands_ = {};
  operands_.x = address("x");
  for (std::size_t slice = 0; slice < problem_->widths.size(); ++slice) {
    operands_.a.push_back(address(indexed("a", slice)));
    operands_.b.push_back(address(indexed("b", slice)));
    operands_.bias.push_back(address(indexed("bias", slice)));
  }
  operands_.h = address("h");
  operands_.y = address("y");
  operands_.workspace = address("workspace");
  operands_.adapter_of_token = static_cast<const std::int32_t*>(address("adapter_of_token"));
  operands_.token_order = static_cast<const std::int32_t*>(address("token_order"));
  operands_.active_ids = static_cast<const std::int32_t*>(address("active_ids"));
  operands_.group_starts = static_cast<const std::int32_t*>(address("group_starts"));
  operands_.rank = static_cast<const std::int32_t*>(address("rank"));
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
