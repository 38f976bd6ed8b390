#pragma once

#include <cstdint>
#include <vector>

#include "reference/rounding.h"

namespace lora_bench::reference {

// Rows of one adapter, evaluated together.
struct Part {
  std::int64_t adapter = 0, rank = 0;
  double scale = 1;
  std::vector<std::int64_t> rows;    // positions in the list of asked rows
  std::vector<std::int64_t> tokens;  // the token of each
  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(rows.size()); }
};

// h of one part and one slice.
struct Hidden {
  Buffer value;                // [rows, rank]
  Buffer error;                // [rows, rank], |h of the code under test - value| at most
  double largest_partial = 0;  // kModelled, see Rows
};

// h of a part, by slice; of a slice of width 0 nothing. On up to so many threads, which change no
// bit of it.
[[nodiscard]] std::vector<Hidden> shrink(const Problem& problem, const Arithmetic& arithmetic,
                                         Rounding rounding, const Part& part, std::int64_t threads);
[[nodiscard]] std::vector<Hidden> given_hidden(const Problem& problem, const Part& part);

}  // namespace lora_bench::reference
