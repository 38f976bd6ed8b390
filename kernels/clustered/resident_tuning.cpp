#include "kernels/clustered/resident_tuning.h"

#include <algorithm>

#include "kernels/chains.h"
#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

// What a block needs at most.
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
  // Neighbouring lanes on other banks: an odd number of 64 bytes.
  const std::int64_t lane_pitch = (chain_length(shape.in_features) / 32 | 1) * 64;
  const std::int64_t sums = kClusteredBarrierBytes + steps * shape.hidden_vectors * 256 * eights;
  const std::int64_t x = sums + kChains * rows * lane_eights * 32;
  const bool aligned = cluster % kChains == 0 || kChains % cluster == 0;
  const std::int64_t chains = std::min(kChains, kChains / cluster + (aligned ? 0 : 2));
  const std::int64_t a =
      x + std::max<std::int64_t>(chains, 1) * divide_up(chain_length(shape.in_features), 64) * 2048;
  const std::int64_t b = a + divide_up(pairs, cluster) * 16 * lane_pitch;
  const std::int64_t all = b + divide_up(units, std::int64_t{cluster} * groups) *
                                   (kResidentColumns / 8) * (16 * shape.max_rank + 32);
  tuning.fits = all <= shape.shared_bytes;
  if (tuning.fits) {
    tuning.lane_pitch = static_cast<int>(lane_pitch);
    tuning.sums = static_cast<int>(sums);
    tuning.x = static_cast<int>(x);
    tuning.a = static_cast<int>(a);
    tuning.b = static_cast<int>(b);
    tuning.shared_bytes = static_cast<int>(all);
  }
  return tuning;
}

// As many groups as find room beside those of the next kernel, up to a unit a warp.
ResidentTuning grouped(const ClusteredShape& shape, int eights, int cluster) {
  const std::int64_t tiles = std::max<std::int64_t>(
      {1, std::min(shape.active, shape.tokens), shape.tokens / kClusteredRows / eights});
  const std::int64_t units = shape.columns / kResidentColumns + shape.slices;
  const std::int64_t room = shape.multiprocessors * 7 / 8 / (tiles * cluster);
  const std::int64_t most =
      std::min(room, divide_up(units, std::int64_t{cluster} * kResidentMostWarps));
  for (auto groups = static_cast<int>(most); groups > 0; --groups) {
    const ResidentTuning tuning = resident_of(shape, eights, cluster, groups, kResidentMostWarps);
    const bool two = tuning.shared_bytes <= kClusteredMostOfTwo;  // blocks share a multiprocessor
    if (tuning.fits && (two || groups == 1 || 2 * groups <= room)) {
      return tuning;
    }
  }
  ResidentTuning none;
  none.fits = false;
  return none;
}

}  // namespace

ResidentTuning resident_tuning(const ClusteredShape& shape) {
  if (shape.tokens == 0 || shape.active == 0) {
    return {};
  }
  // Sixteen rows a tile as soon as eight would make tiles that share an adapter.
  const bool many_rows = shape.tokens > kClusteredRows && shape.tokens > 4 * shape.active;
  for (const int eights : {2, 1}) {
    if (eights == 2 && !many_rows) {
      continue;
    }
    for (const int cluster : {16, 8}) {
      const ResidentTuning tuning = grouped(shape, eights, cluster);
      // Blocks of eight with a row for each adapter: `clustered` is as good and takes more
      // adapters.
      if (tuning.fits && (cluster == 16 || eights == 2)) {
        return tuning;
      }
    }
  }
  ResidentTuning none;
  none.fits = false;
  return none;
}

}  // namespace lora_bench::kernels
