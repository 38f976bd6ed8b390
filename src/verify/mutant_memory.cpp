#include <algorithm>
#include <string_view>

#include "core/dtype.h"
#include "verify/mutant_values.h"

namespace lora_bench {
namespace {

std::size_t hash_of(const void* data, std::int64_t bytes) {
  return std::hash<std::string_view>{}(
      {static_cast<const char*>(data), static_cast<std::size_t>(bytes)});
}

const void* address_of(const Problem& problem, const Operands& operands, const Operand& operand) {
  const auto slice = static_cast<std::size_t>(std::max<std::int64_t>(operand.slice, 0));
  switch (operand.role) {
    case Role::kX:
      return operands.x;
    case Role::kA:
      return operands.a[slice];
    case Role::kB:
      return operands.b[slice];
    case Role::kBias:
      return operands.bias[slice];
    case Role::kAScale:
      return operands.a_scale[slice];
    case Role::kXScale:
      return operands.x_scale;
    case Role::kHScale:
      return operands.h_scale;
    case Role::kBScale:
      return operands.b_scale[slice];
    case Role::kFactor:
      return operands.factor;
    default:
      return has_shrink(problem.op) ? nullptr : operands.h;
  }
}

std::int64_t bytes_of_a(const Problem& problem) {
  return problem.slots * problem.max_rank * problem.in_features *
         size_bytes(problem.dtype[Role::kA]);
}

}  // namespace

void MutantMemory::note(const Problem& problem, const Operands& operands) {
  before_last_ = last_;
  last_ = std::move(now_);
  now_ = {};
  for (const Operand& operand : operands_of(problem)) {
    const void* const data = address_of(problem, operands, operand);
    if (data != nullptr && !operand.written) {
      std::size_t& hash = operand.per_slot ? now_.weights : now_.rows;
      hash = hash * 31 + hash_of(data, operand.bytes());
    }
  }
  const auto tokens = static_cast<std::size_t>(problem.tokens);
  now_.plan.assign(operands.adapter_of_token, operands.adapter_of_token + tokens);
  now_.scales.assign(operands.scale, operands.scale + problem.slots);
  now_.first_a = operands.a.empty() ? nullptr : operands.a.front();
  now_.h = operands.h;
  now_.y = operands.y;
  const bool again = now_.rows == last_.rows && now_.weights == last_.weights &&
                     now_.plan == last_.plan && now_.y == last_.y;
  same_in_a_row_ = again ? same_in_a_row_ + 1 : 0;
}

bool MutantMemory::leaves_out_all(Fault fault) const {
  const auto idle = [](const Mark& mark) {
    return std::all_of(mark.plan.begin(), mark.plan.end(), [](std::int32_t id) { return id < 0; });
  };
  return fault == Fault::kFirstAfterIdleLost && now_.y == last_.y &&
         now_.plan.size() == last_.plan.size() && idle(last_);
}

// Steps of one row, as 'a row alone' runs them, lie where others lay by chance, and so may those of
// other rows or weights: a step comes back where its plan and its weights do.
bool MutantMemory::leaves_out_shrink(Fault fault) const {
  const bool in_one_workspace = now_.plan.size() > 1 && now_.h == last_.h;
  return fault == Fault::kHOfOtherRows && now_.y != nullptr && in_one_workspace &&
         now_.first_a != last_.first_a && now_.h == before_last_.h &&
         now_.first_a == before_last_.first_a && now_.y != before_last_.y &&
         now_.plan == before_last_.plan && now_.weights == before_last_.weights &&
         now_.weights != last_.weights;
}

void MutantMemory::keep_a(const Problem& problem, const Operands& operands) {
  a_.clear();
  const std::int64_t bytes = bytes_of_a(problem);
  for (const void* address : operands.a) {
    const auto* data = static_cast<const std::byte*>(address);
    a_.emplace_back(data, data + (data == nullptr ? 0 : bytes));
  }
}

Operands MutantMemory::taken(const Problem& problem, const Operands& operands, Fault fault) {
  Operands result = operands;
  if (fault == Fault::kWeightsOfSameRows || fault == Fault::kWeightsOfFirstLaunch) {
    const bool again =
        (fault == Fault::kWeightsOfFirstLaunch && !a_.empty() &&
         std::ssize(a_.front()) == bytes_of_a(problem)) ||
        (fault == Fault::kWeightsOfSameRows && now_.rows == last_.rows && now_.plan == last_.plan &&
         now_.scales == last_.scales && now_.first_a == last_.first_a);
    if (!again || a_.size() != operands.a.size()) {
      keep_a(problem, operands);
    }
    for (std::size_t slice = 0; slice < a_.size(); ++slice) {
      result.a[slice] = operands.a[slice] == nullptr ? nullptr : a_[slice].data();
    }
  }
  if (fault == Fault::kWeightScalesOfFirstLaunch) {
    for (const Operand& operand : operands_of(problem)) {
      if (operand.role != Role::kAScale && operand.role != Role::kBScale) {
        continue;
      }
      std::vector<std::byte>& kept = weight_scales_[{operand.role, operand.slice}];
      if (std::ssize(kept) != operand.bytes()) {
        const auto* const now =
            static_cast<const std::byte*>(address_of(problem, operands, operand));
        kept.assign(now, now + operand.bytes());
      }
      auto& taken = operand.role == Role::kAScale ? result.a_scale : result.b_scale;
      taken[static_cast<std::size_t>(operand.slice)] = kept.data();
    }
  }
  if (fault == Fault::kScalesOfSameWeights) {
    const bool again = now_.weights == last_.weights && now_.rows == last_.rows;
    if (!again || scales_.size() != now_.scales.size()) {
      scales_ = now_.scales;
    }
    result.scale = scales_.data();
  }
  return result;
}

}  // namespace lora_bench
