#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

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
    CHECK(tuning.slot_bytes >= 8 * kClusteredPiecePitch);
    CHECK(tuning.slot_bytes >= kClusteredColumns * 2 * (shape.max_rank + rows));
    CHECK(tuning.x_bytes >= rows * (chain_length(shape.in_features) * 2 + 64));
    CHECK(tuning.tiles >= std::min(shape.tokens, shape.active));
  }
  CHECK(taken > 1000);
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

TEST_CASE("clustered: fewer adapters have larger clusters") {
  CHECK(clustered_tuning(decode(1, 1)).cluster == 16);
  CHECK(clustered_tuning(decode(16, 16)).cluster == 6);  // 48 pairs: one for each of eight warps
  ClusteredShape even = decode(16, 16);
  even.slices = 2;
  CHECK(clustered_tuning(even).cluster == 8);
  CHECK(clustered_tuning(decode(32, 32)).cluster == 6);
  CHECK(clustered_tuning(decode(64, 64)).cluster == 2);
  CHECK(clustered_tuning(decode(512, 512)).cluster == 1);
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
