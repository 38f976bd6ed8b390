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

// How a slot's elements turn: the first `count` of them, by `by`; the others stay.
struct Turn {
  std::int64_t count = 0, by = 0;
};

std::int64_t elements_of_slot(const Weights& weights) {
  return weights.tensor.elements / weights.problem.slots;
}

// The same for every batch: ranks may be others in the next.
Turn turn_of(const Weights& weights, std::int64_t slot, std::int64_t set) {
  const Problem& problem = weights.problem;
  const std::int64_t elements = elements_of_slot(weights);
  const std::int64_t lanes = problem.own_rank.empty()
                                 ? problem.max_rank
                                 : problem.own_rank[static_cast<std::size_t>(slot)];
  Turn turn{elements, 0};
  if (lanes < problem.max_rank && weights.role == Role::kB) {
    const std::int64_t rows = elements / problem.max_rank;
    turn.by = rows > 0 ? distance(rows, set) * problem.max_rank : 0;
    return turn;
  }
  if (lanes < problem.max_rank && weights.role == Role::kA) {
    turn.count = elements / problem.max_rank * lanes;
  }
  turn.by = turn.count > 0 ? distance(turn.count, set) : 0;
  return turn;
}

HostTensor cut_weights(const Excerpt& excerpt, const Weights& whole, std::int64_t set, int threads,
                       std::vector<std::byte> data) {
  constexpr std::size_t kWorthThreads = std::size_t{4} << 20;
  const std::size_t slot_bytes =
      whole.tensor.data.size() / static_cast<std::size_t>(whole.problem.slots);
  const std::int64_t count = slot_bytes > 0 ? std::ssize(excerpt.slots) : 0;
  resize_bytes(data, static_cast<std::int64_t>(slot_bytes) * count);
  for_blocks(count, 1, data.size() < kWorthThreads ? 1 : threads,
             [&](std::int64_t slot, std::int64_t) {
               const auto at = static_cast<std::size_t>(slot);
               copy_turned_slot(whole, excerpt.slots[at], set, data.data() + at * slot_bytes);
             });
  return tensor_of(whole.tensor.dtype, std::move(data));
}

}  // namespace

TurnedSlot turned_slot(const Weights& weights, std::int64_t slot, std::int64_t set) {
  const auto element_bytes = static_cast<std::size_t>(size_bytes(weights.tensor.dtype));
  const auto bytes = static_cast<std::size_t>(elements_of_slot(weights)) * element_bytes;
  const Turn turn = turn_of(weights, slot, set);
  const auto turned = static_cast<std::size_t>(turn.count) * element_bytes;
  const auto first = static_cast<std::size_t>(turn.by) * element_bytes;
  const std::byte* from = weights.tensor.data.data() + static_cast<std::size_t>(slot) * bytes;
  return {std::span(from + first, turned - first), std::span(from, first),
          std::span(from + turned, bytes - turned)};
}

void copy_turned_slot(const Weights& weights, std::int64_t slot, std::int64_t set, std::byte* to) {
  for (const std::span<const std::byte> piece : turned_slot(weights, slot, set)) {
    to = std::copy(piece.begin(), piece.end(), to);
  }
}

std::int64_t drawn_element(const Weights& weights, std::int64_t slot, std::int64_t set,
                           std::int64_t element) {
  const Turn turn = turn_of(weights, slot, set);
  return slot * elements_of_slot(weights) +
         (element < turn.count ? (element + turn.by) % turn.count : element);
}

void copy_elements_of_set(const Weights& weights, std::int64_t slot, std::int64_t set,
                          std::int64_t first, std::int64_t count, std::byte* to) {
  const std::int64_t element_bytes = size_bytes(weights.tensor.dtype);
  std::int64_t before = first * element_bytes;
  std::int64_t wanted = count * element_bytes;
  for (const std::span<const std::byte> piece : turned_slot(weights, slot, set)) {
    const std::int64_t skipped = std::min(before, std::ssize(piece));
    const std::int64_t here = std::min(wanted, std::ssize(piece) - skipped);
    to = std::copy_n(piece.begin() + skipped, here, to);
    before -= skipped;
    wanted -= here;
  }
}

std::int64_t element_of_set(const Weights& weights, std::int64_t set, std::int64_t index) {
  const std::int64_t elements = elements_of_slot(weights);
  const std::int64_t slot = index / elements;
  const std::int64_t element = index % elements;
  const Turn turn = turn_of(weights, slot, set);
  return slot * elements +
         (element < turn.count ? (element + turn.count - turn.by) % turn.count : element);
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
  problem.route = whole.route.of_rows(excerpt.rows);
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
          cut_weights(excerpt, {whole, operand.role, from}, set, threads,
                      lent ? std::move(earlier.of(operand).data) : std::vector<std::byte>());
    } else if (operand.of_all_rows) {
      cut.of(operand) = from;
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
