#pragma once

#include <cstdint>
#include <vector>

#include "workload/tensors.h"

namespace lora_bench {

// What nobody could know while time was taken.
[[nodiscard]] std::uint64_t drawn_secret();
// What follows from it: a number from 0 to below `bound`; of these numbers `most`, or all where
// they are fewer, in the order in which they were drawn.
[[nodiscard]] std::int64_t drawn_below(std::uint64_t secret, std::uint64_t stream,
                                       std::int64_t index, std::int64_t bound);
[[nodiscard]] std::vector<std::int64_t> drawn_of(std::vector<std::int64_t> numbers,
                                                 std::int64_t most, std::uint64_t secret,
                                                 std::uint64_t stream);
// 0, 1 ... to below `past`.
[[nodiscard]] std::vector<std::int64_t> count_to(std::int64_t past);

// The adapter of a row, below 0 where it has none, and the rank of an adapter.
[[nodiscard]] std::int64_t slot_of(const Problem& problem, std::int64_t row);
[[nodiscard]] std::int64_t rank_of(const Problem& problem, std::int64_t slot);
// The rows that the op writes, ascending: those that have an adapter with a rank.
[[nodiscard]] std::vector<std::int64_t> owned_rows(const Problem& problem);

// Numbers as they were, in the order in which they were changed.
struct OldNumber {
  HostTensor* tensor = nullptr;
  std::int64_t index = 0;
  float value = 0;
};
using Replaced = std::vector<OldNumber>;
void put_back(const Replaced& replaced);

// Where operand set `set` is changed: so little, at places that follow from `secret`, that who
// looks at some elements of every row sees the same as before, and so much there that what the rows
// come to is another result under any bound that proves something; yet an h of fp16 stays finite,
// as long as no number of another change lies in x or A.
struct SmallChange {
  const Problem& problem;
  std::int64_t set = 0;
  std::vector<std::int64_t> rows;  // of owned_rows
  std::uint64_t secret = 0;
  Replaced* replaced = nullptr;  // what was changed is added to it
};

// One number in one slice of each of the adapters of the first rows; nothing where the op has none.
void change_a(const SmallChange& change, Tensors& tensors);
void change_b(const SmallChange& change, Tensors& tensors);
void change_bias(const SmallChange& change, Tensors& tensors);
// One scale of the weights themselves, for each of these adapters; weights of 16 bits have none.
void change_a_scale(const SmallChange& change, Tensors& tensors);
void change_b_scale(const SmallChange& change, Tensors& tensors);
void change_row_scale(const SmallChange& change, Tensors& tensors);
// One number of x in each row, or of a given h.
void change_rows(const SmallChange& change, Tensors& tensors);

// Whether an fp16 h stays finite where x and A have one sign.
[[nodiscard]] bool takes_one_sign(const Problem& problem);

// Every scale is another one, in the tensors too; ranks are half as large, those of 1 stay.
void change_scales(Problem& problem, Tensors& tensors);
void halve_ranks(Problem& problem);

// Another batch of the same adapters: each row has that of the row so many places further, one row
// of the largest group another one. Ranks are half as large and every scale is another one, in the
// tensors too.
[[nodiscard]] Problem other_batch(const Problem& problem, std::int64_t places, Tensors& tensors);

}  // namespace lora_bench
