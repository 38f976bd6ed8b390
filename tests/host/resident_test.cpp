#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/chains.h"
#include "kernels/clustered/resident_tuning.h"
#include "support/cluster_shapes.h"

using namespace lora_bench::kernels;

namespace {

ClusteredShape decode(std::int64_t tokens, std::int64_t active, std::int64_t max_rank,
                      std::int64_t columns) {
  ClusteredShape shape;
  shape.tokens = tokens;
  shape.active = active;
  shape.slices = 2;
  shape.max_rank = max_rank;
  shape.in_features = 4096;
  shape.columns = columns;
  return shape;
}

ClusteredShape drawn_shape(std::uint64_t index) { return drawn_cluster_shape(37, index, 20); }

}  // namespace

TEST_CASE("resident: has clusters for any batch within the limits") {
  ClusteredShape shape = decode(24, 8, 16, 4096);
  const ResidentTuning any = resident_tuning(shape);
  REQUIRE(any.fits);
  CHECK(any.tiles == 11);
  shape.row_tiles = RowTiles(std::vector<std::int32_t>{0, 3, 6, 9, 12, 15, 18, 21, 24});
  CHECK(resident_tuning(shape) == any);
}

TEST_CASE("resident: a block has room for its share of the weights and all that is made of them") {
  int taken = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    ClusteredShape shape = drawn_shape(i);
    shape.weight_bytes = 1 + static_cast<std::int64_t>(i % 2);
    const ResidentTuning tuning = resident_tuning(shape);
    if (!tuning.fits) {
      continue;
    }
    ++taken;
    CAPTURE(i);
    const std::int64_t rows = std::int64_t{8} * tuning.eights;
    const std::int64_t shares = std::int64_t{tuning.cluster} * tuning.groups;
    const std::int64_t eights = shape.slices * ((shape.max_rank + 7) / 8);
    CHECK(tuning.shared_bytes <= shape.shared_bytes);
    CHECK(tuning.warps <= kResidentMostWarps);
    CHECK(tuning.sums - kClusteredBarrierBytes >=
          shape.slices * ((shape.max_rank + 15) / 16) * 16 * rows * 2);
    CHECK(tuning.x - tuning.sums >= kChains * rows * eights * 8 * 4);
    CHECK(tuning.x_rows >= std::min(shape.tokens, rows));
    CHECK((tuning.eights == 1 || tuning.x_rows == rows));
    CHECK(tuning.a - tuning.x >=
          tuning.x_rows * (chain_length(shape.in_features) * 2 + kResidentPad));
    CHECK((tuning.b - tuning.a) * tuning.cluster >= kChains * eights * 8 * tuning.lane_pitch);
    CHECK((tuning.a_scales - tuning.b) * shares >=
          shape.columns * (shape.max_rank * 2 + shape.scale_bytes()));
    CHECK(tuning.shared_bytes - tuning.a_scales >=
          shape.slices * shape.max_rank * shape.scale_bytes());
    CHECK(tuning.lane_pitch >= 2 * chain_length(shape.in_features));
    CHECK(tuning.lane_pitch % 32 == 16);  // eight neighbouring lanes on different banks
    for (const int offset : {tuning.sums, tuning.x, tuning.a, tuning.b, tuning.a_scales}) {
      CHECK(offset % 16 == 0);
    }
    // A tile a group, and what is left of each.
    CHECK(tuning.tiles * rows + shape.active * rows > shape.tokens);
    CHECK(tuning.tiles >= std::min(shape.tokens, shape.active));
  }
  CHECK(taken > 100);
}

TEST_CASE("resident: weights of eight bits become 16 in their room, so they need some more") {
  ClusteredShape shape = decode(1, 1, 16, 6144);
  const ResidentTuning of_sixteen = resident_tuning(shape);
  shape.weight_bytes = 1;
  ResidentTuning of_eight = resident_tuning(shape);
  constexpr int kScalesOfUnit = kResidentColumns * 4;
  constexpr int kScalesOfLanes = 2 * 16 * 4;
  CHECK(of_eight.a_scales - of_eight.b > of_sixteen.shared_bytes - of_sixteen.b);
  CHECK((of_eight.a_scales - of_sixteen.a_scales) % kScalesOfUnit == 0);
  CHECK(of_eight.shared_bytes == of_eight.a_scales + kScalesOfLanes);
  of_eight.a_scales = of_sixteen.a_scales;
  of_eight.shared_bytes = of_sixteen.shared_bytes;
  CHECK(of_eight == of_sixteen);
}

TEST_CASE("resident: the columns of one adapter are shared by as many clusters as have units") {
  CHECK(resident_tuning(decode(1, 1, 16, 28672)).groups == 7);
  CHECK(resident_tuning(decode(1, 1, 16, 6144)).groups == 2);
  CHECK(resident_tuning(decode(1, 1, 16, 1024)).groups == 1);
}

TEST_CASE("resident: many adapters are left to clustered, nothing at all is no launch") {
  CHECK_FALSE(resident_tuning(decode(64, 64, 16, 6144)).fits);
  CHECK_FALSE(resident_tuning(decode(256, 1, 64, 6144)).fits);
  CHECK(resident_tuning(decode(0, 0, 16, 6144)).tiles == 0);
}
