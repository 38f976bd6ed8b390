#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "kernels/chains.h"
#include "kernels/clustered/clustered_tuning.h"
#include "support/cluster_shapes.h"

using namespace lora_bench::kernels;

namespace {

ClusteredShape drawn_shape(std::uint64_t index) { return drawn_cluster_shape(31, index, 130); }

ClusteredShape decode(std::int64_t tokens, std::int64_t active) {
  ClusteredShape shape;
  shape.tokens = tokens;
  shape.active = active;
  shape.slices = 3;
  shape.max_rank = 16;
  shape.in_features = 4096;
  shape.columns = 6144;
  return shape;
}

}  // namespace

TEST_CASE("clustered: what fits for eight rows fits for every batch, within the block's memory") {
  int taken = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const ClusteredShape shape = drawn_shape(i);
    if (!clustered_takes(shape)) {
      continue;
    }
    ++taken;
    const ClusteredTuning tuning = clustered_tuning(shape);
    CAPTURE(i);
    CHECK(tuning.fits);
    CHECK(tuning.shared_bytes <= shape.shared_bytes);
    CHECK(tuning.cluster >= 1);
    CHECK(tuning.cluster <= 16);
    CHECK(tuning.warps * tuning.slots * 8 + 8 <= kClusteredBarrierBytes);
    CHECK(tuning.warps * 32 <= 512);
    const std::int64_t rows = std::min<std::int64_t>(shape.tokens, kClusteredRows);
    CHECK(tuning.slot_bytes >= 8 * tuning.piece_pitch);
    CHECK(tuning.slot_bytes >= std::int64_t{tuning.columns} * 2 * (shape.max_rank + rows));
    CHECK(tuning.x_bytes >= rows * (chain_length(shape.in_features) * 2 + kClusteredPad));
    CHECK(tuning.tiles >= std::min(shape.tokens, shape.active));
  }
  CHECK(taken > 1000);
}

TEST_CASE("clustered: weights of eight bits take half the room, and their scales some") {
  int taken = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    ClusteredShape shape = drawn_shape(i);
    const bool wide_taken = clustered_takes(shape);
    shape.weight_bytes = 1;
    CAPTURE(i);
    CHECK(clustered_takes(shape) >= wide_taken);
    if (!clustered_takes(shape)) {
      continue;
    }
    ++taken;
    const ClusteredTuning tuning = clustered_tuning(shape);
    CHECK(tuning.fits);
    CHECK(tuning.shared_bytes <= shape.shared_bytes);
    const std::int64_t rows = std::min<std::int64_t>(shape.tokens, kClusteredRows);
    CHECK(tuning.slot_bytes >= tuning.columns * (shape.max_rank + 2 * rows + 4));
    CHECK(tuning.slot_bytes >= 8 * tuning.piece_pitch);
    // Copies in bulk begin on 16 bytes.
    CHECK(tuning.slot_bytes % 16 == 0);
    CHECK(tuning.piece_pitch % 16 == 0);
    CHECK(tuning.piece_pitch > tuning.piece);
    CHECK(tuning.piece_pitch <= tuning.piece + kClusteredPadOfStreams / 2);
  }
  CHECK(taken > 300);
}

TEST_CASE("clustered: what is taken does not depend on tokens or adapters") {
  for (std::uint64_t i = 0; i < 500; ++i) {
    ClusteredShape shape = drawn_shape(i);
    const bool taken = clustered_takes(shape);
    shape.tokens = 1;
    shape.active = 1;
    CAPTURE(i);
    CHECK(clustered_takes(shape) == taken);
  }
}

TEST_CASE(
    "clustered: where the groups are known each tile has a cluster, and there are no others") {
  // Sixteen rows of one adapter and one each of sixteen: 18 tiles, where 32 rows of 17 adapters let
  // there be 21.
  ClusteredShape shape = decode(32, 17);
  CHECK(clustered_tuning(shape).tiles == 21);
  std::vector<std::int32_t> starts{0, 16};
  while (starts.size() < 18) {
    starts.push_back(starts.back() + 1);
  }
  shape.row_tiles = RowTiles(starts);
  CHECK(clustered_tuning(shape).tiles == 18);
  CHECK(clustered_likely_tiles(shape) == 18);
  CHECK(clustered_likely_tiles(shape, 16) == 17);
  // One of each fills as many clusters as there are adapters.
  shape = decode(64, 64);
  const ClusteredTuning any = clustered_tuning(shape);
  starts.resize(65);
  std::iota(starts.begin(), starts.end(), 0);
  shape.row_tiles = RowTiles(starts);
  CHECK(clustered_tuning(shape) == any);
}

// Measured, 80 rows of 80 adapters: 11.2 us instead of 13.2 with two blocks a multiprocessor (rank
// 8, qkv), 15.0 instead of 18.3 (16), 12.9 instead of 15.7 (32, o). 92 are slower.
TEST_CASE("clustered: small weights of some more tiles have three blocks a multiprocessor") {
  const auto tuning_of = [](std::int64_t adapters, std::int64_t rank, bool known) {
    ClusteredShape shape = decode(adapters, adapters);
    shape.max_rank = rank;
    std::vector<std::int32_t> starts(static_cast<std::size_t>(adapters) + 1);
    std::iota(starts.begin(), starts.end(), 0);
    if (known) {
      shape.row_tiles = RowTiles(starts);
    }
    return clustered_tuning(shape);
  };
  for (const std::int64_t rank : {8, 16}) {
    const ClusteredTuning tuning = tuning_of(80, rank, true);
    CHECK(tuning.fits);
    CHECK(tuning.cluster == 4);
    CHECK(tuning.shared_bytes <= kClusteredMostOfThree);
    CHECK(tuning_of(80, rank, false).cluster == 2);
    CHECK(tuning_of(92, rank, true).cluster == 2);
  }
  CHECK(tuning_of(36, 8, true).cluster == 6);
  CHECK(tuning_of(36, 8, true).shared_bytes <= kClusteredMostOfThree);
}

// Measured, us: 30 rows of 30 adapters of rank 16, o 4.4 instead of 5.5, down 8.2 instead of 9.3;
// 64 of 64 of 32, o 10.6 instead of 12.4; 36 of 36 of 32, qkv 14.0 instead of 17.6.
TEST_CASE(
    "clustered: few pairs of a chain and lanes have small clusters, long streams large blocks") {
  ClusteredShape o = decode(30, 30);
  o.slices = 1;
  o.columns = 4096;
  CHECK(clustered_tuning(o).cluster == 4);
  CHECK(clustered_tuning(o).slots == 2);
  ClusteredShape down = o;
  down.in_features = 14336;
  CHECK(clustered_tuning(down).cluster == 4);
  CHECK(clustered_tuning(down).shared_bytes <= kClusteredMostOfTwo);
  o.tokens = o.active = 64;
  o.max_rank = 32;
  CHECK(clustered_tuning(o).cluster == 2);
  CHECK(clustered_tuning(o).warps == 16);
  ClusteredShape qkv = decode(36, 36);
  qkv.max_rank = 32;
  CHECK(clustered_tuning(qkv).cluster == 3);
  CHECK(clustered_tuning(qkv).slots == 2);
}

// Measured, 186 rows of 63 adapters of rank 128, qkv: 189 us with clusters of two, 278 without.
TEST_CASE("clustered: some more tiles than find a place two blocks each do not get one each") {
  ClusteredShape shape = decode(186, 63);
  shape.max_rank = 128;
  shape.columns = 10240;
  std::vector<std::int32_t> starts{0, 20, 40, 60};
  while (starts.size() < 64) {
    starts.push_back(starts.back() + 2);
  }
  shape.row_tiles = RowTiles(starts);
  CHECK(clustered_likely_tiles(shape) == 69);
  CHECK(clustered_tuning(shape).cluster == 2);
}

// Measured on an H200, 2048 pairs of 1007 hits, w2 of Qwen3-30B: 42.0 us with two blocks of four
// warps a multiprocessor, 85.9 with one of sixteen.
TEST_CASE("clustered: hits by the thousand have two blocks a multiprocessor, many rows or few") {
  for (const std::int64_t pairs : {1500, 2048, 4000}) {
    ClusteredShape shape = decode(pairs, 1007);
    shape.slices = 1;
    shape.in_features = 768;
    shape.columns = 2048;
    std::vector<std::int32_t> starts;
    for (std::int64_t hit = 0; hit <= 1007; ++hit) {
      starts.push_back(static_cast<std::int32_t>(hit * pairs / 1007));
    }
    shape.row_tiles = RowTiles(starts);
    CAPTURE(pairs);
    CHECK(clustered_tuning(shape).cluster == 1);
    CHECK(clustered_tuning(shape).shared_bytes <= kClusteredMostOfTwo);
  }
}

TEST_CASE("clustered: fewer adapters have larger clusters") {
  int last = 16;
  for (const std::int64_t adapters : {1, 7, 8, 16, 24, 32, 64, 128, 512}) {
    CAPTURE(adapters);
    const int cluster = clustered_tuning(decode(adapters, adapters)).cluster;
    CHECK(cluster <= last);
    last = cluster;
  }
  CHECK(last == 1);
  CHECK(clustered_tuning(decode(16, 16)).cluster == 8);
  CHECK(clustered_tuning(decode(32, 32)).cluster == 6);
  CHECK(clustered_tuning(decode(64, 64)).cluster == 2);
}

TEST_CASE("clustered: clusters find a place at once where each adapter has one") {
  for (std::int64_t adapters = 8; adapters <= 132; ++adapters) {
    for (const std::int64_t rank : {8, 16, 64, 128}) {
      ClusteredShape shape = decode(adapters, adapters);
      shape.max_rank = rank;
      const ClusteredTuning tuning = clustered_tuning(shape);
      CAPTURE(adapters);
      CAPTURE(rank);
      REQUIRE(tuning.fits);
      const std::int64_t blocks = tuning.shared_bytes <= kClusteredMostOfTwo ? 2 : 1;
      CHECK(adapters * tuning.cluster * tuning.groups <= blocks * shape.multiprocessors);
    }
  }
}

TEST_CASE("clustered: few adapters whose weights are mostly B share their columns") {
  ClusteredShape shape = decode(1, 1);
  shape.columns = 57344;
  CHECK(clustered_tuning(shape).groups > 1);
  shape.tokens = shape.active = 8;
  CHECK(clustered_tuning(shape).groups == 2);
  shape.tokens = shape.active = 16;
  CHECK(clustered_tuning(shape).groups == 1);
  CHECK(clustered_tuning(decode(4, 4)).groups == 1);
}

TEST_CASE("clustered: no cluster waits for a place where weights are mostly B") {
  // Measured, two blocks a multiprocessor.
  const std::map<int, std::int64_t> at_once{{8, 30}, {6, 38}, {5, 44}, {4, 60}, {2, 132}};
  for (std::int64_t adapters = 8; adapters <= 52; ++adapters) {
    for (const std::int64_t rank : {8, 16, 32}) {
      ClusteredShape shape = decode(adapters, adapters);
      shape.slices = 2;
      shape.columns = 28672;
      shape.max_rank = rank;
      const ClusteredTuning tuning = clustered_tuning(shape);
      CAPTURE(adapters);
      CAPTURE(rank);
      REQUIRE(tuning.shared_bytes <= kClusteredMostOfTwo);
      REQUIRE(at_once.count(tuning.cluster) == 1);
      CHECK(adapters * tuning.groups <= at_once.at(tuning.cluster));
    }
  }
}

TEST_CASE("clustered: of many lanes each block owns some, in units of few columns") {
  const ClusteredTuning few = clustered_tuning(decode(8, 8));
  CHECK(few.owned == 0);
  CHECK(few.columns == kClusteredColumns);
  ClusteredShape shape = decode(8, 8);
  shape.max_rank = 256;
  const ClusteredTuning many = clustered_tuning(shape);
  REQUIRE(many.fits);
  CHECK(many.columns == kClusteredFewColumns);
  CHECK(std::int64_t{many.owned} * many.cluster * 8 >= shape.slices * shape.max_rank);
}

// Measured: 37.2 us became 31.2, 26.5 became 23.1, 8.9 became 7.6; a third of 1792 elements was
// worse.
TEST_CASE("clustered: a chain of A is as few pieces as a warp has room for, of one length") {
  ClusteredShape shape = decode(6, 6);
  shape.max_rank = 256;
  shape.in_features = 5120;
  shape.columns = 7680;
  CHECK(clustered_tuning(shape).piece == 640);
  shape.max_rank = 192;
  shape.in_features = 5376;
  shape.columns = 8192;
  CHECK(clustered_tuning(shape).piece == 704);
  CHECK(clustered_tuning(decode(6, 6)).piece == kClusteredPiece);
  ClusteredShape down = decode(3, 3);
  down.slices = 1;
  down.max_rank = 48;
  down.in_features = 17920;
  down.columns = 5120;
  CHECK(clustered_tuning(down).piece == 768);
  CHECK(clustered_tuning(down).slots == 2);
  down.in_features = 14336;
  CHECK(clustered_tuning(down).piece == kClusteredPiece);
}

// Measured: 9.8 us became 9.3, and 13.2 became 12.5; 16.6 would have become 21.3.
TEST_CASE("clustered: lanes of a piece lie for loads in large clusters, for copies in small ones") {
  const auto pad_of = [](const ClusteredShape& shape) {
    const ClusteredTuning tuning = clustered_tuning(shape);
    return tuning.piece_pitch - 2 * tuning.piece;
  };
  ClusteredShape shape = decode(2, 2);
  shape.max_rank = 96;
  shape.in_features = 5120;
  shape.columns = 10240;
  CHECK(pad_of(shape) == kClusteredPad);
  CHECK(pad_of(decode(64, 64)) == kClusteredPadOfStreams);
  ClusteredShape wide = decode(15, 15);
  wide.slices = 2;
  wide.max_rank = 48;
  wide.columns = 28672;
  CHECK(clustered_tuning(wide).shared_bytes > kClusteredMostOfTwo);
}

TEST_CASE("clustered: short streams leave room for the next kernel, long ones take it") {
  CHECK(clustered_tuning(decode(32, 32)).shared_bytes <= 113 << 10);
  CHECK(clustered_tuning(decode(64, 64)).shared_bytes > 113 << 10);
}

TEST_CASE("clustered: no tokens and no adapters are no launch, and very many are refused") {
  CHECK(clustered_tuning(decode(0, 0)).tiles == 0);
  CHECK(clustered_tuning(decode(8, 0)).tiles == 0);
  CHECK_FALSE(clustered_tuning(decode(std::int64_t{1} << 20, 1)).fits);
}

TEST_CASE("clustered: rows of sums are on neighbouring banks, whatever the rank") {
  for (std::int64_t slices = 1; slices <= 8; ++slices) {
    for (const std::int64_t rank : {8, 16, 24, 64, 128}) {
      CHECK(clustered_sums_pitch(slices, rank) % 32 == 16);
      CHECK(clustered_sums_pitch(slices, rank) >= slices * rank);
    }
  }
}
