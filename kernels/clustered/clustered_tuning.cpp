#include "kernels/clustered/clustered_tuning.h"

#include <algorithm>

#include "kernels/chains.h"
#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

constexpr std::int64_t kMostSlots = 63;       // barriers of a block
constexpr std::int64_t kMostTiles = 65535;    // of a grid's second dimension
constexpr std::int64_t kMostUnits = 1 << 13;  // of columns: the kernel divides in fp32
constexpr int kLeastWarps = 2;
constexpr std::int64_t kSlack = 512;  // reads beyond the last row of x

// Adapters with rows, and tiles beyond one of each, that a batch within the limits has at hand.
std::int64_t likely_tiles(const ClusteredShape& shape) {
  return std::max<std::int64_t>(
      {1, std::min(shape.active, shape.tokens), shape.tokens / kClusteredRows});
}

std::int64_t slot_bytes(const ClusteredShape& shape) {
  const std::int64_t rows = std::min<std::int64_t>(shape.tokens, kClusteredRows);
  const std::int64_t unit = kClusteredColumns * 2 * (shape.max_rank + rows);
  return std::max<std::int64_t>(8 * kClusteredPiecePitch, unit);
}

std::int64_t sums_bytes(const ClusteredShape& shape) {
  return kChains * kClusteredRows * clustered_sums_pitch(shape.slices, shape.max_rank) * 4;
}

std::int64_t hidden_bytes(const ClusteredShape& shape) {
  return shape.slices * divide_up(shape.max_rank, 16) * shape.hidden_vectors * 512;
}

std::int64_t x_bytes_of(const ClusteredShape& shape, std::int64_t chains) {
  const std::int64_t rows = std::min<std::int64_t>(shape.tokens, kClusteredRows);
  return rows * (chains * chain_length(shape.in_features) * 2 + 64);
}

// Chains that a block has pairs of.
std::int64_t chains_of_block(int cluster) {
  if (cluster % kChains == 0 || kChains % cluster == 0) {
    return std::max<std::int64_t>(kChains / cluster, 1);
  }
  return std::min<std::int64_t>(kChains, kChains / cluster + 2);
}

// With all the room for x that there is below `most` bytes, one chain at least.
ClusteredTuning tuning_of(const ClusteredShape& shape, int cluster, int warps, int slots,
                          std::int64_t most) {
  ClusteredTuning tuning;
  tuning.tiles = std::min(shape.tokens, shape.tokens / kClusteredRows + shape.active);
  tuning.cluster = cluster;
  tuning.warps = warps;
  tuning.slots = slots;
  tuning.slot_bytes = static_cast<int>(slot_bytes(shape));
  tuning.hidden_bytes = static_cast<int>(hidden_bytes(shape));
  const std::int64_t others = kClusteredBarrierBytes + slot_bytes(shape) * warps * slots +
                              sums_bytes(shape) + hidden_bytes(shape) + kSlack;
  const std::int64_t chains = chains_of_block(cluster);
  const std::int64_t x =
      std::clamp<std::int64_t>(most - others, x_bytes_of(shape, 1), x_bytes_of(shape, chains));
  tuning.x_bytes = static_cast<int>(divide_up(x, 16) * 16);
  tuning.shared_bytes = static_cast<int>(others) + tuning.x_bytes;
  tuning.fits = tuning.shared_bytes <= shape.shared_bytes && warps * slots <= kMostSlots &&
                tuning.tiles <= kMostTiles;
  return tuning;
}

// Clusters that find a place at once shrink with the room that a GPC has for them.
int cluster_of_two(const ClusteredShape& shape) {
  const std::int64_t tiles = likely_tiles(shape);
  if (tiles * 16 <= shape.multiprocessors * 7 / 8) {
    return 16;
  }
  const std::int64_t most = std::clamp<std::int64_t>(shape.multiprocessors * 3 / 2 / tiles, 1, 8);
  // A pair for each of eight warps is worth two blocks.
  const std::int64_t pairs = kChains * shape.slices * divide_up(shape.max_rank, 8);
  const bool even_in_six = pairs % (8 * most) != 0 && pairs % (8 * 6) == 0;
  return static_cast<int>(most > 6 && even_in_six ? 6 : most);
}

}  // namespace

std::int64_t clustered_sums_pitch(std::int64_t slices, std::int64_t max_rank) {
  const std::int64_t lanes = slices * divide_up(max_rank, 8) * 8;
  return divide_up(lanes + 16, 32) * 32 - 16;  // 16 beyond a multiple of 32: other banks
}

bool clustered_takes(ClusteredShape shape) {
  shape.tokens = kClusteredRows;
  shape.active = 1;
  return shape.columns / kClusteredColumns + shape.slices <= kMostUnits &&
         tuning_of(shape, 16, kLeastWarps, 1, 0).fits;
}

ClusteredTuning clustered_tuning(const ClusteredShape& shape) {
  if (shape.tokens == 0 || shape.active == 0) {
    return {};
  }
  const std::int64_t tiles = likely_tiles(shape);
  const std::int64_t bytes_of_sm = 2 * tiles * shape.max_rank *
                                   (shape.slices * shape.in_features + shape.columns) /
                                   shape.multiprocessors;
  const std::int64_t lane_tiles = shape.slices * divide_up(shape.max_rank, 8);
  // As many warps as fit, best so many that all of them have as many pairs.
  const auto widest = [&](int cluster) {
    ClusteredTuning best;
    best.fits = false;
    for (const int warps : {16, 12, 8, 4, kLeastWarps}) {
      const ClusteredTuning tuning = tuning_of(shape, cluster, warps, 1, shape.shared_bytes);
      const bool even = kChains * lane_tiles % (cluster * warps) == 0;
      if (tuning.fits && (even || !best.fits)) {
        best = tuning;
      }
      if (tuning.fits && even) {
        break;
      }
    }
    return best;
  };

  // Long streams: a block has a multiprocessor for itself and asks for much at a time.
  constexpr std::int64_t kLongStream = 250 << 10;
  if (bytes_of_sm > kLongStream) {
    return widest(static_cast<int>(std::clamp<std::int64_t>(shape.multiprocessors / tiles, 1, 8)));
  }
  // Short ones: two blocks on each, so that the next kernel's begin while this one's end.
  const int cluster = cluster_of_two(shape);
  ClusteredTuning tuning;
  if (tiles * cluster <= shape.multiprocessors / 2) {  // room for both anyway: all at once
    tuning = tuning_of(shape, cluster, 8, 2, shape.shared_bytes);
    if (tuning.fits) {
      return tuning;
    }
  }
  const bool few_pairs = kChains * lane_tiles <= 4 * cluster && shape.in_features > 8192;
  tuning = few_pairs ? tuning_of(shape, cluster, 4, 2, kClusteredMostOfTwo)
                     : tuning_of(shape, cluster, 8, 1, kClusteredMostOfTwo);
  // Many rows an adapter: x of all chains of a block at once is worth two warps.
  const bool many_rows = shape.tokens > 2 * shape.active;
  if (many_rows && tuning.warps == 8 &&
      tuning.x_bytes < x_bytes_of(shape, chains_of_block(cluster))) {
    const ClusteredTuning fewer = tuning_of(shape, cluster, 6, 1, kClusteredMostOfTwo);
    if (fewer.x_bytes >= x_bytes_of(shape, chains_of_block(cluster))) {
      tuning = fewer;
    }
  }
  return tuning.fits ? tuning : widest(cluster);
}

ClusteredTuning clustered_tuning_of(const ClusteredShape& shape, const ClusteredSaid& said) {
  const ClusteredTuning own = clustered_tuning(shape);
  const int cluster = said.cluster > 0 ? said.cluster : own.cluster;
  const int warps = said.warps > 0 ? said.warps : own.warps;
  const int slots = said.slots > 0 ? said.slots : own.slots;
  const bool same = cluster == own.cluster && warps == own.warps && slots == own.slots;
  if (own.tiles == 0 || (same && said.blocks == 0)) {
    return own;
  }
  const auto of_blocks = [&](int blocks) {
    const std::int64_t most = blocks == 2 ? kClusteredMostOfTwo : shape.shared_bytes;
    ClusteredTuning tuning = tuning_of(shape, cluster, warps, slots, most);
    tuning.fits = tuning.fits && tuning.shared_bytes <= most;
    return tuning;
  };
  const ClusteredTuning tuning = of_blocks(said.blocks > 0 ? said.blocks : 2);
  return tuning.fits || said.blocks > 0 ? tuning : of_blocks(1);
}

}  // namespace lora_bench::kernels
