#pragma once

#include <cstdint>

namespace lora_bench::kernels {

// What decides whether the kernel takes a layer. Host only, pure.
struct StreamedShape {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;  // of y
  std::int64_t depth = 0;    // columns of W
  std::int64_t x_stride = 0;
  std::int64_t element_bytes = 2;
  int compute_capability = 90;
};
// Of what adapters add.
struct StreamedAdaptersShape {
  std::int64_t active = 0;
  std::int64_t slices = 0;
  std::int64_t max_rank = 0;
  const std::int64_t* widths = nullptr;  // of the slices
  std::int64_t first_column = 0;         // of the first
};

constexpr std::int64_t kStreamedMostTokens = 8;
constexpr std::int64_t kStreamedRows = 16;    // of W in one unit of work, and lanes of A
constexpr std::int64_t kStreamedGroup = 32;   // columns of W that a warp multiplies at once
constexpr std::int64_t kStreamedSplits = 32;  // parts of K of h; their sums are added in turn
// Of all active adapters, what a unit's rows of B have; and of all rows and slices, what h has.
constexpr std::int64_t kStreamedLanes = 128;
constexpr std::int64_t kStreamedHidden = 2048;

[[nodiscard]] bool streamed_takes(const StreamedShape& shape);
// Units of a block that share what is read of x.
[[nodiscard]] int streamed_units_together(std::int64_t tokens, std::int64_t units, bool adapters);
// Additions on the longest path of a sum over K: of the base, and of h.
[[nodiscard]] std::int64_t streamed_base_depth(const StreamedShape& shape);
[[nodiscard]] std::int64_t streamed_hidden_depth(const StreamedShape& shape);
// In a layer that it takes.
[[nodiscard]] bool streamed_takes_adapters(const StreamedShape& shape,
                                           const StreamedAdaptersShape& adapters);
// Of four bytes, of workspace.
[[nodiscard]] std::int64_t streamed_words(const StreamedShape& shape, std::int64_t slices,
                                          std::int64_t max_rank);

}  // namespace lora_bench::kernels
