#include "measure/operand_sets.h"

#include "core/dtype.h"

namespace lora_bench {

OperandSets::OperandSets(Memory& memory, const Problem& problem, const Tensors& tensors,
                         CacheMode cache, std::int64_t sets, std::int64_t workspace_bytes)
    : memory_(memory), problem_(problem), tensors_(tensors) {
  Operands operands;
  add_plan(operands);
  for (std::int64_t set = 0; set < sets; ++set) {
    if (set == 0 || cache != CacheMode::kHot) {
      add_weights(operands);
    }
    if (set == 0 || cache == CacheMode::kCold) {
      add_activations(operands, workspace_bytes);
    }
    operands_.push_back(operands);
  }
  renew_inputs();
}

void* OperandSets::keep(std::int64_t bytes, const void* from) {
  if (bytes == 0) {
    return nullptr;
  }
  GuardedBuffer buffer(memory_, bytes);
  if (from != nullptr) {
    buffer.upload(from, bytes);
  }
  buffers_.push_back(std::move(buffer));
  return buffers_.back().data();
}

void* OperandSets::keep(const HostTensor& tensor) {
  return keep(static_cast<std::int64_t>(tensor.data.size()), tensor.data.data());
}

void OperandSets::add_plan(Operands& operands) {
  const auto ids = [&](const std::vector<std::int32_t>& values) {
    return static_cast<const std::int32_t*>(
        keep(static_cast<std::int64_t>(values.size() * sizeof(std::int32_t)), values.data()));
  };
  operands.adapter_of_token = ids(problem_.plan.adapter_of_token);
  operands.token_order = ids(problem_.plan.token_order);
  operands.active_ids = ids(problem_.plan.active_ids);
  operands.group_starts = ids(problem_.plan.group_starts);
  operands.rank = ids({problem_.rank.begin(), problem_.rank.end()});
  operands.scale = static_cast<const float*>(keep(
      static_cast<std::int64_t>(tensors_.scale.size() * sizeof(float)), tensors_.scale.data()));
}

void OperandSets::add_weights(Operands& operands) {
  const auto all = [&](const std::vector<HostTensor>& tensors) {
    std::vector<const void*> addresses;
    for (const HostTensor& tensor : tensors) {
      addresses.push_back(keep(tensor));
    }
    addresses.resize(problem_.widths.size(), nullptr);
    return addresses;
  };
  operands.a = all(tensors_.a);
  operands.b = all(tensors_.b);
  operands.bias = all(tensors_.bias);
}

void OperandSets::add_activations(Operands& operands, std::int64_t workspace_bytes) {
  x_.emplace_back(memory_, static_cast<std::int64_t>(tensors_.x.data.size()));
  operands.x = tensors_.x.data.empty() ? nullptr : x_.back().data();
  operands.workspace = keep(workspace_bytes, nullptr);
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

void OperandSets::prepare_check(std::int64_t output) {
  const auto index = static_cast<std::size_t>(output);
  y_[index].upload(tensors_.y.data);
  if (has_shrink(problem_.op)) {
    h_[index].poison();
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

std::vector<std::byte> OperandSets::output_of(std::int64_t output) const {
  memory_.synchronize();
  const auto index = static_cast<std::size_t>(output);
  return has_expand(problem_.op) ? y_[index].download() : h_[index].download();
}

std::string OperandSets::damage() const {
  for (const std::vector<GuardedBuffer>* buffers : {&h_, &y_}) {
    for (const GuardedBuffer& buffer : *buffers) {
      if (const std::string damage = buffer.damage(); !damage.empty()) {
        return (buffers == &h_ ? "guard of h damaged: " : "guard of y damaged: ") + damage;
      }
    }
  }
  return "";
}

}  // namespace lora_bench
