#include "workload/excerpt.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/bytes.h"

namespace lora_bench {
namespace {

// Multiples of the golden section keep the furthest apart.
std::int64_t distance(std::int64_t elements, std::int64_t set) {
  const double turns = static_cast<double>(set) * 0.6180339887498949;
  const auto found =
      static_cast<std::int64_t>((turns - std::floor(turns)) * static_cast<double>(elements));
  return std::min(found, elements - 1);
}

HostTensor tensor_of(Dtype dtype, std::vector<std::byte> data) {
  HostTensor tensor;
  tensor.dtype = dtype;
  tensor.elements = static_cast<std::int64_t>(data.size()) / size_bytes(dtype);
  tensor.data = std::move(data);
  return tensor;
}

HostTensor cut_weights(const Excerpt& excerpt, std::int64_t slots, const HostTensor& whole,
                       std::int64_t set, int threads, std::vector<std::byte> data) {
  constexpr std::size_t kWorthThreads = std::size_t{4} << 20;
  const std::size_t slot_bytes = whole.data.size() / static_cast<std::size_t>(slots);
  const std::int64_t count = slot_bytes > 0 ? std::ssize(excerpt.slots) : 0;
  resize_bytes(data, static_cast<std::int64_t>(slot_bytes) * count);
  for_blocks(
      count, 1, data.size() < kWorthThreads ? 1 : threads, [&](std::int64_t slot, std::int64_t) {
        const auto at = static_cast<std::size_t>(slot);
        copy_turned_slot(whole, slots, excerpt.slots[at], set, data.data() + at * slot_bytes);
      });
  return tensor_of(whole.dtype, std::move(data));
}

}  // namespace

TurnedSlot turned_slot(const HostTensor& tensor, std::int64_t slots, std::int64_t slot,
                       std::int64_t set) {
  const std::int64_t elements = tensor.elements / slots;
  if (elements == 0) {
    return {};
  }
  const auto bytes = static_cast<std::size_t>(elements * size_bytes(tensor.dtype));
  const auto first = static_cast<std::size_t>(distance(elements, set) * size_bytes(tensor.dtype));
  const std::byte* from = tensor.data.data() + static_cast<std::size_t>(slot) * bytes;
  return {std::span(from + first, bytes - first), std::span(from, first)};
}

void copy_turned_slot(const HostTensor& tensor, std::int64_t slots, std::int64_t slot,
                      std::int64_t set, std::byte* to) {
  for (const std::span<const std::byte> piece : turned_slot(tensor, slots, slot, set)) {
    to = std::copy(piece.begin(), piece.end(), to);
  }
}

std::int64_t drawn_element(const HostTensor& tensor, std::int64_t slots, std::int64_t slot,
                           std::int64_t set, std::int64_t element) {
  const std::int64_t elements = tensor.elements / slots;
  return slot * elements + (element + distance(elements, set)) % elements;
}

void copy_elements_of_set(const HostTensor& tensor, std::int64_t slots, std::int64_t slot,
                          std::int64_t set, std::int64_t first, std::int64_t count, std::byte* to) {
  const std::int64_t bytes = size_bytes(tensor.dtype);
  const std::int64_t end = (slot + 1) * (tensor.elements / slots);
  while (count > 0) {
    const std::int64_t at = drawn_element(tensor, slots, slot, set, first);
    const std::int64_t here = std::min(count, end - at);
    to = std::copy_n(tensor.data.data() + at * bytes, here * bytes, to);
    first += here;
    count -= here;
  }
}

std::int64_t element_of_set(const HostTensor& tensor, std::int64_t slots, std::int64_t set,
                            std::int64_t index) {
  const std::int64_t elements = tensor.elements / slots;
  const std::int64_t slot = index / elements;
  return slot * elements + (index % elements + elements - distance(elements, set)) % elements;
}

Excerpt excerpt_of(const Problem& whole, std::vector<std::int64_t> rows) {
  Excerpt excerpt{whole, std::move(rows), {}};
  std::vector<std::int32_t> ids;
  for (const std::int64_t row : excerpt.rows) {
    const std::int64_t slot = whole.plan.adapter_of_token[static_cast<std::size_t>(row)];
    if (slot < 0) {
      ids.push_back(kNoAdapter);
      continue;
    }
    auto known = std::find(excerpt.slots.begin(), excerpt.slots.end(), slot);
    ids.push_back(static_cast<std::int32_t>(known - excerpt.slots.begin()));
    if (known == excerpt.slots.end()) {
      excerpt.slots.push_back(slot);
    }
  }
  if (excerpt.slots.empty()) {
    excerpt.slots.push_back(0);
  }
  Problem& problem = excerpt.problem;
  problem.tokens = static_cast<std::int64_t>(excerpt.rows.size());
  problem.slots = static_cast<std::int64_t>(excerpt.slots.size());
  problem.rank.clear();
  problem.own_rank.clear();
  problem.scale.clear();
  for (const std::int64_t slot : excerpt.slots) {
    problem.rank.push_back(whole.rank[static_cast<std::size_t>(slot)]);
    if (!whole.own_rank.empty()) {
      problem.own_rank.push_back(whole.own_rank[static_cast<std::size_t>(slot)]);
    }
    problem.scale.push_back(whole.scale[static_cast<std::size_t>(slot)]);
  }
  problem.plan = make_plan(ids, problem.slots);
  return excerpt;
}

std::vector<std::byte> cut_rows(const Excerpt& excerpt, std::int64_t tokens_of_whole,
                                const std::vector<std::byte>& whole, std::int64_t row_bytes) {
  const auto bytes = static_cast<std::size_t>(row_bytes);
  const std::size_t block = static_cast<std::size_t>(tokens_of_whole) * bytes;
  std::vector<std::byte> cut;
  // h has a block of rows for each slice.
  for (std::size_t start = 0; block > 0 && start + block <= whole.size(); start += block) {
    for (const std::int64_t row : excerpt.rows) {
      const std::byte* from = whole.data() + start + static_cast<std::size_t>(row) * bytes;
      cut.insert(cut.end(), from, from + bytes);
    }
  }
  return cut;
}

Tensors cut_tensors(const Excerpt& excerpt, const Problem& whole, const Tensors& tensors,
                    std::int64_t set, int threads, Tensors earlier) {
  Tensors cut = empty_tensors(whole, tensors.fill);
  const bool lent = earlier.a.size() == whole.widths.size();
  for (const Operand& operand : operands_of(whole)) {
    const HostTensor& from = tensors.of(operand);
    if (operand.per_slot) {
      cut.of(operand) =
          cut_weights(excerpt, whole.slots, from, set, threads,
                      lent ? std::move(earlier.of(operand).data) : std::vector<std::byte>());
    } else {
      const std::int64_t row_bytes = operand.shape.back() * size_bytes(operand.dtype);
      cut.of(operand) =
          tensor_of(operand.dtype, cut_rows(excerpt, whole.tokens, from.data, row_bytes));
    }
  }
  for (const std::int64_t slot : excerpt.slots) {
    cut.scale.push_back(tensors.scale[static_cast<std::size_t>(slot)]);
  }
  return cut;
}

}  // namespace lora_bench
