#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"
#include "workload/fill_sizes.h"
#include "workload/problem.h"

namespace lora_bench {

// How the values of one row depart from those of a fill of plain reals.
struct RowBend {
  float factor = 1;           // of the whole row; 0 clears it, the signs of the zeros stay
  std::int64_t kept_of = 1;   // one element of so many stays, drawn; the others are zero
  std::int64_t zero_of = 0;   // one element of so many is zero, drawn; 0 = none
  std::int64_t far_of = 0;    // one element of so many is `far_factor` times as large; 0 = none
  std::int64_t only = -1;     // all other elements are zero; -1 = no such element
  std::int64_t outlier = -1;  // this element is `far_factor` times as large; -1 = none
  float far_factor = 1;
  bool constant = false;                           // all elements have the magnitude of the first
  const std::vector<float>* of_element = nullptr;  // a factor for each element; null = none
};

// Applies a bend to the numbers of a row, whose first one has the index `first_index`.
void bend_row(const RowBend& bend, const RandomStream& random, std::uint64_t first_index,
              std::span<float> row);

// Rows of x, lanes and columns of Fill::kUneven: what activations and trained weights have and
// uniform numbers lack. All of it follows from the seed, the problem and the index of the row;
// lanes and columns do not depend on the batch.
class Uneven {
 public:
  Uneven(const Problem& problem, const FillSizes& sizes, Fill fill, std::uint64_t seed);

  // The token whose row of x (or of a given h) `token` repeats: itself, or an earlier one that has
  // an adapter.
  [[nodiscard]] std::int64_t source_of(std::int64_t token) const;
  // Of two slots in a row, 0 and 1, 2 and 3, ..., one pair has one A and the next one B. The slot
  // whose numbers `slot` has: itself, or the first of its pair.
  [[nodiscard]] std::int64_t slot_of_a(std::int64_t slot) const;
  [[nodiscard]] std::int64_t slot_of_b(std::int64_t slot) const;
  // The law of a B that both slots of a pair can have.
  [[nodiscard]] const ElementLaw& law_of_b(std::int64_t slot) const;
  // Of a row of x or of a given h with so many elements.
  [[nodiscard]] RowBend row_of_x(std::int64_t token) const;
  [[nodiscard]] RowBend row_of_h(std::int64_t token, std::int64_t lanes) const;
  // Of a row of an h that a shrink adds to: some rows are zero where x is not, others are not where
  // x is, and so are lanes where A is zero.
  [[nodiscard]] RowBend row_of_added_h(std::int64_t token) const;
  [[nodiscard]] RowBend row_of_y(std::int64_t token) const;
  [[nodiscard]] RowBend lane_of_a(std::int64_t lane) const;
  [[nodiscard]] RowBend column_of_b(std::int64_t slot, std::int64_t column,
                                    std::int64_t width) const;
  [[nodiscard]] RowBend bias() const;

 private:
  enum class Kind : std::uint8_t;
  [[nodiscard]] Kind kind_of(std::int64_t token) const;
  [[nodiscard]] std::int64_t kind_of_lane(std::int64_t lane) const;
  [[nodiscard]] float factor_of(Kind kind) const;
  [[nodiscard]] RowBend row(std::int64_t token, std::int64_t elements) const;
  [[nodiscard]] std::int64_t below(std::int64_t index, std::int64_t bound) const;
  [[nodiscard]] bool pair_has_one_b(std::int64_t slot) const;

  const Problem& problem_;
  std::vector<std::int32_t> adapters_;  // of each row of x, see slots_of_x_rows
  const FillSizes& sizes_;
  std::uint64_t seed_;
  float large_ = 1, huge_ = 1, small_ = 1, tiny_ = 1, outlier_ = 1, far_bias_ = 1;
  std::vector<float> features_;  // [K], 0 of a feature that no row has
  // [max_rank], of A (or h), of an h that is added to, and of B
  std::vector<float> lanes_up_, lanes_added_, lanes_down_;
};

}  // namespace lora_bench
