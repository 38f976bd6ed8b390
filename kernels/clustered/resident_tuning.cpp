#include "kernels/clustered/resident_tuning.h"

#include <algorithm>

#include "kernels/chains.h"
#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

// What a block needs at most. Weights of eight bits become numbers of 16 in shared memory, so they
// have as much room there.
ResidentTuning resident_of(const ClusteredShape& shape, int eights, int cluster, int groups,
                           int warps) {
  const std::int64_t rows = std::int64_t{8} * eights;
  const std::int64_t lane_eights = shape.slices * divide_up(shape.max_rank, 8);
  const std::int64_t pairs = kChains * divide_up(lane_eights, 2);
  const std::int64_t units = shape.columns / kResidentColumns + shape.slices;
  const std::int64_t steps = shape.slices * divide_up(shape.max_rank, 16);
  ResidentTuning tuning;
  tuning.tiles = std::min(shape.tokens, shape.tokens / rows + shape.active);
  tuning.eights = eights;
  tuning.cluster = cluster;
  tuning.groups = groups;
  tuning.warps = warps;
  tuning.x_rows = eights == 1 ? static_cast<int>(std::min(shape.tokens, rows)) : 8 * eights;
  const std::int64_t lane_pitch = 2 * chain_length(shape.in_features) + kResidentPad;
  const std::int64_t sums = kClusteredBarrierBytes + steps * shape.hidden_vectors * 256 * eights;
  const std::int64_t x = sums + kChains * rows * lane_eights * 32;
  const bool aligned = cluster % kChains == 0 || kChains % cluster == 0;
  const std::int64_t chains = std::min(kChains, kChains / cluster + (aligned ? 0 : 2));
  const std::int64_t a =
      x + std::max<std::int64_t>(chains, 1) * tuning.x_rows *
              (divide_up(chain_length(shape.in_features), 64) * 128 + kResidentPad);
  const std::int64_t b = a + divide_up(pairs, cluster) * 16 * lane_pitch;
  const std::int64_t unit =
      kResidentColumns / 8 * (16 * shape.max_rank + 32) + kResidentColumns * shape.scale_bytes();
  const std::int64_t a_scales = b + divide_up(units, std::int64_t{cluster} * groups) * unit;
  const std::int64_t all = a_scales + 8 * lane_eights * shape.scale_bytes();
  tuning.fits = all <= shape.shared_bytes;
  if (tuning.fits) {
    tuning.lane_pitch = static_cast<int>(lane_pitch);
    tuning.sums = static_cast<int>(sums);
    tuning.x = static_cast<int>(x);
    tuning.a = static_cast<int>(a);
    tuning.b = static_cast<int>(b);
    tuning.a_scales = static_cast<int>(a_scales);
    tuning.shared_bytes = static_cast<int>(all);
  }
  return tuning;
}

ResidentTuning nothing_fits() {
  ResidentTuning none;
  none.fits = false;
  return none;
}

// Whether two blocks share a multiprocessor; with sixteen rows registers do not let them.
bool two_share(const ResidentTuning& tuning) {
  return tuning.fits && tuning.eights == 1 && tuning.shared_bytes <= kClusteredMostOfTwo;
}

// As many groups as find room beside those of the next kernel, up to a unit a warp.
ResidentTuning grouped(const ClusteredShape& shape, int eights, int cluster, std::int64_t most) {
  const std::int64_t tiles = clustered_likely_tiles(shape, std::int64_t{kClusteredRows} * eights);
  const std::int64_t units = shape.columns / kResidentColumns + shape.slices;
  const std::int64_t room = shape.multiprocessors * 7 / 8 / (tiles * cluster);
  most = std::min({most, room, divide_up(units, std::int64_t{cluster} * kResidentMostWarps)});
  for (auto groups = static_cast<int>(most); groups > 0; --groups) {
    const ResidentTuning tuning = resident_of(shape, eights, cluster, groups, kResidentMostWarps);
    if (tuning.fits && (two_share(tuning) || groups == 1 || 2 * groups <= room)) {
      return tuning;
    }
  }
  return nothing_fits();
}

}  // namespace

// Never by the tiles that there are: clusters that find none cost nothing here, and the next kernel
// has its weights no earlier where there are fewer (README.md).
ResidentTuning resident_tuning(const ClusteredShape& of_batch) {
  ClusteredShape shape = of_batch;
  shape.row_tiles = {};
  if (shape.tokens == 0 || shape.active == 0) {
    return {};
  }
  constexpr std::int64_t kAll = 8;
  const std::int64_t tiles = clustered_likely_tiles(shape, kClusteredRows);
  const bool wide = shape.columns > 2 * shape.slices * shape.in_features;
  const std::int64_t weights = shape.weight_bytes * tiles * shape.max_rank *
                               (shape.slices * shape.in_features + shape.columns);
  constexpr std::int64_t kWide = 4 << 20;
  if (wide && tiles > 1 && weights > kWide) {
    return nothing_fits();  // groups of `clustered` are better
  }
  // A few tiles: more, smaller clusters have less to send around.
  const bool short_shrink = shape.slices * divide_up(shape.max_rank, 8) <= 2;
  if (tiles >= 2 && tiles <= 4 && (wide || short_shrink)) {
    const ResidentTuning tuning = grouped(shape, 1, 8, wide ? kAll : 3);
    if (two_share(tuning) && tuning.groups >= 3) {
      return tuning;
    }
  }
  // Sixteen rows a tile, where that halves weights of which there are many.
  constexpr std::int64_t kManyLanes = 32;
  if (shape.tokens > kClusteredRows && shape.tokens > 4 * shape.active &&
      shape.max_rank >= kManyLanes) {
    for (const int cluster : {16, 8}) {
      const ResidentTuning tuning = grouped(shape, 2, cluster, kAll);
      if (tuning.fits) {
        return tuning;
      }
    }
  }
  if (const ResidentTuning tuning = grouped(shape, 1, 16, tiles == 1 ? kAll : 2); tuning.fits) {
    return tuning;
  }
  constexpr std::int64_t kTilesOfEight = 12;
  const ResidentTuning tuning = grouped(shape, 1, 8, 1);
  return tiles <= kTilesOfEight && two_share(tuning) ? tuning : nothing_fits();
}

}  // namespace lora_bench::kernels
