#include "verify/step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/convert.h"
#include "verify/evidence.h"

namespace lora_bench {
namespace {

// Block i of the result is block from[i]; all blocks have the same number of elements.
HostTensor take_blocks(const HostTensor& tensor, std::span<const std::int64_t> from,
                       std::int64_t block_elements) {
  const std::size_t block = at(block_elements * size_bytes(tensor.dtype));
  HostTensor result{tensor.dtype, static_cast<std::int64_t>(from.size()) * block_elements, {}};
  if (tensor.elements == 0) {
    result.elements = 0;
    return result;
  }
  result.data.resize(from.size() * block);
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::memcpy(result.data.data() + i * block, tensor.data.data() + at(from[i]) * block, block);
  }
  return result;
}

void double_elements(HostTensor& tensor) {
  for (std::int64_t i = 0; i < tensor.elements; ++i) {
    store(tensor.dtype, tensor.data.data(), i, 2 * load(tensor.dtype, tensor.data.data(), i));
  }
}

void replace_nan(HostTensor& tensor) {
  for (std::int64_t i = 0; i < tensor.elements; ++i) {
    if (std::isnan(load(tensor.dtype, tensor.data.data(), i))) {
      store(tensor.dtype, tensor.data.data(), i, static_cast<float>(i % 7 + 1));
    }
  }
}

}  // namespace

Step select_rows(const Step& step, std::span<const std::int64_t> tokens) {
  Step result = step;
  Problem& problem = result.problem;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> rows_of_h;
  for (const std::int64_t token : tokens) {
    ids.push_back(step.problem.plan.adapter_of_token[at(token)]);
  }
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    for (const std::int64_t token : tokens) {
      rows_of_h.push_back(slice * step.problem.tokens + token);
    }
  }
  problem.tokens = static_cast<std::int64_t>(tokens.size());
  problem.plan = make_plan(ids, problem.slots);
  result.tensors.x = take_blocks(step.tensors.x, tokens, problem.x_stride);
  result.tensors.y = take_blocks(step.tensors.y, tokens, problem.y_stride);
  result.tensors.h = take_blocks(step.tensors.h, rows_of_h, problem.max_rank);
  return result;
}

Step relabel_adapters(const Step& step) {
  Step result = step;
  Problem& problem = result.problem;
  std::vector<std::int64_t> old_slot(at(problem.slots));
  for (std::int64_t slot = 0; slot < problem.slots; ++slot) {
    const std::int64_t moved = (slot + 1) % problem.slots;
    old_slot[at(moved)] = slot;
    problem.rank[at(moved)] = step.problem.rank[at(slot)];
    problem.scale[at(moved)] = step.problem.scale[at(slot)];
    result.tensors.scale[at(moved)] = step.tensors.scale[at(slot)];
  }
  std::vector<std::int32_t> ids;
  for (const std::int32_t id : step.problem.plan.adapter_of_token) {
    const std::int64_t moved = (id + 1) % problem.slots;
    ids.push_back(id == kNoAdapter ? kNoAdapter : static_cast<std::int32_t>(moved));
  }
  problem.plan = make_plan(ids, problem.slots);
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    const auto move = [&](HostTensor& tensor) {
      tensor = take_blocks(tensor, old_slot, tensor.elements / problem.slots);
    };
    move(result.tensors.a[slice]);
    move(result.tensors.b[slice]);
    move(result.tensors.bias[slice]);
  }
  return result;
}

Step double_inputs(const Step& step) {
  Step result = step;
  double_elements(has_shrink(step.problem.op) ? result.tensors.x : result.tensors.h);
  double_elements(result.tensors.y);
  for (HostTensor& bias : result.tensors.bias) {
    double_elements(bias);
  }
  return result;
}

Step fill_unused(const Step& step) {
  Step result = step;
  replace_nan(result.tensors.x);
  for (std::size_t slice = 0; slice < step.problem.widths.size(); ++slice) {
    replace_nan(result.tensors.a[slice]);
    replace_nan(result.tensors.b[slice]);
    replace_nan(result.tensors.bias[slice]);
  }
  if (!has_shrink(step.problem.op)) {
    replace_nan(result.tensors.h);
  }
  return result;
}

Step single_slice(const Step& step, std::int64_t slice) {
  Step result = step;
  Problem& problem = result.problem;
  problem.widths = {step.problem.widths[at(slice)]};
  problem.offset_start = std::accumulate(step.problem.widths.begin(),
                                         step.problem.widths.begin() + slice, problem.offset_start);
  result.tensors.a = {step.tensors.a[at(slice)]};
  result.tensors.b = {step.tensors.b[at(slice)]};
  result.tensors.bias = {step.tensors.bias[at(slice)]};
  const std::vector<std::int64_t> block{slice};
  result.tensors.h =
      take_blocks(step.tensors.h, block, step.problem.tokens * step.problem.max_rank);
  return result;
}

Problem rotate_adapters(const Problem& problem) {
  Problem result = problem;
  std::vector<std::int32_t> ids = problem.plan.adapter_of_token;
  if (!ids.empty()) {
    std::rotate(ids.begin(), ids.begin() + 1, ids.end());
  }
  result.plan = make_plan(ids, problem.slots);
  return result;
}

Problem without_adapters(const Problem& problem) {
  Problem result = problem;
  const std::vector<std::int32_t> ids(at(problem.tokens), kNoAdapter);
  result.plan = make_plan(ids, problem.slots);
  return result;
}

std::vector<std::int64_t> all_rows(const Problem& problem) {
  std::vector<std::int64_t> rows(at(problem.tokens));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

}  // namespace lora_bench
