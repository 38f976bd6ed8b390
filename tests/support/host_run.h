#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "device/memory.h"
#include "ops/backend.h"
#include "workload/tensors.h"

// All operands of a problem in guarded buffers of one memory, and the addresses as a backend takes
// them. Buffers have the alignment of their dtype only.
class LoadedProblem {
 public:
  LoadedProblem(const lora_bench::Problem& problem, const lora_bench::Tensors& tensors,
                lora_bench::Memory& memory)
      : memory_(memory) {
    using namespace lora_bench;
    const std::int64_t step = size_bytes(problem.dtype[Role::kY]);
    operands.x = keep(tensors.x.data, step);
    for (std::size_t i = 0; i < problem.widths.size(); ++i) {
      operands.a.push_back(i < tensors.a.size() ? keep(tensors.a[i].data, step) : nullptr);
      operands.b.push_back(i < tensors.b.size() ? keep(tensors.b[i].data, step) : nullptr);
      operands.bias.push_back(i < tensors.bias.size() ? keep(tensors.bias[i].data, step) : nullptr);
    }
    h = add(tensors.h.data, size_bytes(problem.dtype[Role::kH]));
    y = add(tensors.y.data, step);
    operands.h = buffers_[h].data();
    operands.y = buffers_[y].data();
    operands.adapter_of_token = keep_array(problem.plan.adapter_of_token);
    operands.token_order = keep_array(problem.plan.token_order);
    operands.active_ids = keep_array(problem.plan.active_ids);
    operands.group_starts = keep_array(problem.plan.group_starts);
    operands.rank = keep_array(std::vector<std::int32_t>(problem.rank.begin(), problem.rank.end()));
    operands.scale = keep_array(tensors.scale);
  }

  // Of every buffer that was damaged.
  [[nodiscard]] std::string damage() const {
    std::string text;
    for (const lora_bench::GuardedBuffer& buffer : buffers_) {
      text += buffer.damage();
    }
    return text;
  }
  [[nodiscard]] std::vector<std::byte> download_h() const { return buffers_[h].download(); }
  [[nodiscard]] std::vector<std::byte> download_y() const { return buffers_[y].download(); }

  lora_bench::Operands operands;

 private:
  std::size_t add(const std::vector<std::byte>& bytes, std::int64_t misalign) {
    buffers_.emplace_back(memory_, static_cast<std::int64_t>(bytes.size()), misalign);
    buffers_.back().upload(bytes);
    return buffers_.size() - 1;
  }
  const void* keep(const std::vector<std::byte>& bytes, std::int64_t misalign) {
    return bytes.empty() ? nullptr : buffers_[add(bytes, misalign)].data();
  }
  template <typename T>
  const T* keep_array(const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    if (!bytes.empty()) {
      std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    return static_cast<const T*>(buffers_[add(bytes, 0)].data());
  }

  lora_bench::Memory& memory_;
  std::vector<lora_bench::GuardedBuffer> buffers_;
  std::size_t h = 0, y = 0;
};
