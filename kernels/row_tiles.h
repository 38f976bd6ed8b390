#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/divide_up.h"

namespace lora_bench::kernels {

// Tiles of rows of one adapter that the groups of a plan make. Whoever made the plan on the host
// knows how many; whoever captures a launch for any batch within limits does not.
class RowTiles {
 public:
  RowTiles() = default;
  // Where each group starts, and where the last one ends.
  explicit RowTiles(std::span<const std::int32_t> group_starts) : known_(true) {
    for (std::size_t group = 0; group + 1 < group_starts.size(); ++group) {
      const std::int64_t rows = group_starts[group + 1] - group_starts[group];
      for (std::size_t size = 0; size < tiles_.size(); ++size) {
        tiles_[size] += divide_up(rows, kLeast << size);
      }
    }
  }

  [[nodiscard]] bool known() const { return known_; }
  // Of so many rows, a power of two from 8 to 128.
  [[nodiscard]] std::int64_t of(std::int64_t rows) const {
    std::size_t size = 0;
    while (size + 1 < tiles_.size() && kLeast << size < rows) {
      ++size;
    }
    return tiles_[size];
  }
  friend bool operator==(const RowTiles&, const RowTiles&) = default;

 private:
  static constexpr std::int64_t kLeast = 8;
  bool known_ = false;
  std::array<std::int64_t, 5> tiles_ = {};
};

}  // namespace lora_bench::kernels
