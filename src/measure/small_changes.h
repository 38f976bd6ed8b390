#pragma once

#include <cstdint>
#include <vector>

#include "workload/tensors.h"

namespace lora_bench {

// Where operand set `set` is changed: so little, at places that follow from `secret`, that who
// looks at some elements of every row sees the same as before, and so much there that what the rows
// come to is another result under any bound that proves something.
struct SmallChange {
  const Problem& problem;
  std::int64_t set = 0;
  std::vector<std::int64_t> rows;  // that have an adapter with a rank
  std::uint64_t secret = 0;
};

// One number in one slice of each of the adapters of the first rows; nothing where the op has none.
void change_a(const SmallChange& change, Tensors& tensors);
void change_b(const SmallChange& change, Tensors& tensors);
// One number of x in each row, or of a given h.
void change_rows(const SmallChange& change, Tensors& tensors);

// Another batch with as many rows of each adapter: each row has the adapter of the row so many
// places further. Every scale is another one, in the tensors too.
[[nodiscard]] Problem other_batch(const Problem& problem, std::int64_t places, Tensors& tensors);

}  // namespace lora_bench
