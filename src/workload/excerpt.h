#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "workload/tensors.h"

namespace lora_bench {

// The weights of one slot as operand set `set` has them: the numbers of the tensor, turned by
// another distance in every set, so that no two sets are equal; set 0 has them as drawn. Where
// lanes hold zeros (Problem::own_rank), the same lanes do in every set, in A and in B: of A the
// lanes of numbers turn, of B whole rows. They lie in the tensor in three pieces, in the order of
// the slot. A copy costs no more than uploading them, drawing anew would.
struct Weights {
  const Problem& problem;
  Role role = Role::kA;  // which of them `tensor` holds
  const HostTensor& tensor;
};
using TurnedSlot = std::array<std::span<const std::byte>, 3>;
[[nodiscard]] TurnedSlot turned_slot(const Weights& weights, std::int64_t slot, std::int64_t set);
void copy_turned_slot(const Weights& weights, std::int64_t slot, std::int64_t set, std::byte* to);

// Where the tensor keeps what operand set `set` has as element `element` of a slot.
[[nodiscard]] std::int64_t drawn_element(const Weights& weights, std::int64_t slot,
                                         std::int64_t set, std::int64_t element);

// Where operand set `set` has what the tensor keeps as its element `index`, both among all slots.
[[nodiscard]] std::int64_t element_of_set(const Weights& weights, std::int64_t set,
                                          std::int64_t index);

// Copies `count` elements of a slot, from `first` on, as operand set `set` has them.
void copy_elements_of_set(const Weights& weights, std::int64_t slot, std::int64_t set,
                          std::int64_t first, std::int64_t count, std::byte* to);

// Some rows of a problem and the adapters that they use, as a problem of its own: what an oracle
// needs of them, of many operand sets, is small.
struct Excerpt {
  Problem problem;
  std::vector<std::int64_t> rows;   // by row of the excerpt, those of the whole
  std::vector<std::int64_t> slots;  // by slot of the excerpt, those of the whole
};
[[nodiscard]] Excerpt excerpt_of(const Problem& whole, std::vector<std::int64_t> rows);
// Operands of the excerpt, with the weights of operand set `set`. On so many threads (0 = all
// cores). An earlier cut lends its memory.
[[nodiscard]] Tensors cut_tensors(const Excerpt& excerpt, const Problem& whole,
                                  const Tensors& tensors, std::int64_t set, int threads = 0,
                                  Tensors earlier = {});
// Of an x, y or h of the whole.
[[nodiscard]] std::vector<std::byte> cut_rows(const Excerpt& excerpt, std::int64_t tokens_of_whole,
                                              const std::vector<std::byte>& whole,
                                              std::int64_t row_bytes);

}  // namespace lora_bench
