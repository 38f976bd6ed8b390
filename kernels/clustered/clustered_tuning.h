#pragma once

#include <cstdint>

#include "kernels/row_tiles.h"

namespace lora_bench::kernels {

// What the choice depends on: limits of the batch, and how many row tiles it has where that is
// known. It changes no bit of the result: the order of every sum follows from in_features and the
// rank alone.
struct ClusteredShape {
  std::int64_t tokens = 0;
  std::int64_t active = 0;  // adapters that may have rows
  std::int64_t slices = 0;
  std::int64_t max_rank = 0;
  std::int64_t in_features = 0;
  std::int64_t columns = 0;         // of all slices
  std::int64_t weight_bytes = 2;    // of an element of A and B; of 1 columns have scales
  std::int64_t hidden_vectors = 3;  // 16 bytes each that a thread needs for h of 16 lanes
  std::int64_t multiprocessors = 132;
  std::int64_t shared_bytes = 227 << 10;  // that a block may have
  bool any_batch = false;                 // tokens and active are what a later batch may have
  RowTiles row_tiles = {};                // not known: any that tokens and active let be

  [[nodiscard]] std::int64_t scale_bytes() const { return weight_bytes == 1 ? 4 : 0; }
  // Sums of a row of a unit, which a warp puts into shared memory beside weights of eight bits.
  [[nodiscard]] std::int64_t staged_bytes(int of_unit) const { return scale_bytes() * of_unit; }
};

constexpr int kClusteredRows = 8;         // of a tile
constexpr int kClusteredColumns = 64;     // of a unit, which a warp multiplies at a time
constexpr int kClusteredFewColumns = 32;  // the same where blocks own lanes
constexpr int kClusteredPiece = 512;      // elements of K in a slot, of eight lanes: at least
// Rows of x, and of A in a slot, lie so many bytes further apart than they are long: what four
// threads read of four neighbours is on different banks. Bulk copies like those of A better where
// they begin on 64 bytes, which weighs more in small clusters, whose warps have long streams.
constexpr int kClusteredPad = 32;
constexpr int kClusteredPadOfStreams = 64;
constexpr int kClusteredBarrierBytes = 512;  // two barriers of the block, one a slot
// Shared bytes, so that two blocks share a multiprocessor.
constexpr std::int64_t kClusteredMostOfTwo = 113 << 10;
constexpr std::int64_t kClusteredMostOfThree = 75 << 10;

struct ClusteredTuning {
  std::int64_t tiles = 0;  // of rows of one adapter, a cluster each; 0: nothing to do, no launch
  int cluster = 1;         // blocks, up to 16
  int groups = 1;          // clusters that share the columns of a tile
  bool any_batch =
      false;  // `tiles` clusters in parts: their blocks, and up to `groups`, as the batch is
  int most_shared = 0;  // blocks of all parts that share tiles
  int warps = 8;        // of a block
  int columns = 64;     // of a unit
  int owned = 0;        // tiles of 8 lanes that a block adds for all; 0: each block adds all
  int slots = 1;        // of the ring of a warp
  int slot_bytes = 0;
  int piece = kClusteredPiece;
  int piece_pitch = 0;   // bytes from lane to lane of it
  int hidden_bytes = 0;  // for h as fragments
  int x_bytes = 0;       // for rows of x: of one chain at least
  int shared_bytes = 0;
  bool fits = true;  // else there is no such launch

  friend bool operator==(const ClusteredTuning&, const ClusteredTuning&) = default;
};

// Tiles that there are, or that a batch within the limits is likely to have: one an adapter at
// least, and where rows are many half a tile of each that is not full.
[[nodiscard]] std::int64_t clustered_likely_tiles(const ClusteredShape& shape,
                                                  std::int64_t rows = kClusteredRows);
// Tiles that there are at most.
[[nodiscard]] std::int64_t clustered_most_tiles(const ClusteredShape& shape);

// Floats from one row of partial sums to the next.
[[nodiscard]] std::int64_t clustered_sums_pitch(std::int64_t slices, std::int64_t max_rank);

// Whether there is a launch for the shape with any tokens and adapters.
[[nodiscard]] bool clustered_takes(ClusteredShape shape);
[[nodiscard]] ClusteredTuning clustered_tuning(const ClusteredShape& shape);
// What a caller says of a launch; 0 says nothing.
struct ClusteredSaid {
  int cluster = 0;
  int groups = 0;
  int warps = 0;
  int slots = 0;
  int blocks = 0;  // that share a multiprocessor, 1 or 2; not said: two where they fit
  int piece = 0;
};
// The same with what is said.
[[nodiscard]] ClusteredTuning clustered_tuning_of(const ClusteredShape& shape,
                                                  const ClusteredSaid& said);

}  // namespace lora_bench::kernels
