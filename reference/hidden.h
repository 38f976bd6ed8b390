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
// Whether h is quantised between the sums.
[[nodiscard]] bool quantises_h(const Problem& problem, const Arithmetic& arithmetic);
// Adds to what shrink makes what h held: one more addition.
void add_given(const Arithmetic& arithmetic, const Hidden& given, Hidden& hidden);
// Casts h to the format that the second product has B in, where that is declared.
void cast_to_b(const Problem& problem, const Arithmetic& arithmetic, Rounding rounding,
               Hidden& hidden);
// What an h of fp32 is once it is quantised: each value a code times its scale. The error is how
// far from that any h within its own error, its scale too, may come to lie: a step where a code is
// at a tie, else next to nothing.
void quantise(const HiddenQuantiser& quantiser, const Part& part, Hidden& hidden);
[[nodiscard]] std::vector<Hidden> given_hidden(const Problem& problem, const Part& part);

}  // namespace lora_bench::reference
