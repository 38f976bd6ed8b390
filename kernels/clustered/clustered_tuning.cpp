#include "kernels/clustered/clustered_tuning.h"

#include <algorithm>

#include "kernels/chains.h"
#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

constexpr std::int64_t kMostSlots = 62;     // barriers of a block
constexpr std::int64_t kMostTiles = 65535;  // of a grid's second dimension
constexpr std::int64_t kMostUnits =
    1 << 14;  // of columns: a warp finds its run by a division in fp32
constexpr int kLeastWarps = 2;
constexpr std::int64_t kSlack = 512;  // reads beyond the last row of x

// Lanes so many that each block adds its own of them for all, and units are of few columns.
bool many_lanes(const ClusteredShape& shape) {
  constexpr std::int64_t kOfSlice = 64;
  constexpr std::int64_t kOfFewTiles = 96;
  constexpr std::int64_t kFewTiles = 7;
  return shape.max_rank > kOfSlice || (shape.slices * shape.max_rank >= kOfFewTiles &&
                                       clustered_likely_tiles(shape) <= kFewTiles);
}

struct Form {
  int cluster = 1;
  int groups = 1;
  int warps = 8;
  int slots = 1;
  int piece = kClusteredPiece;
  bool any_batch = false;  // parts of a cluster may be one block
};

std::int64_t slot_bytes(const ClusteredShape& shape, int columns, int piece_pitch) {
  const std::int64_t rows = std::min<std::int64_t>(shape.tokens, kClusteredRows);
  const std::int64_t column = shape.weight_bytes * shape.max_rank + 2 * rows + shape.scale_bytes();
  return std::max<std::int64_t>(8 * piece_pitch, columns * column);
}

// Sums of chains, and h where blocks add for one another.
std::int64_t sums_bytes(const ClusteredShape& shape, int owned) {
  const std::int64_t h = clustered_sums_pitch(shape.slices, shape.max_rank);
  return kClusteredRows * 4 *
         (owned > 0 ? kChains * clustered_sums_pitch(owned, 8) + h : kChains * h);
}

std::int64_t hidden_bytes(const ClusteredShape& shape) {
  return shape.slices * divide_up(shape.max_rank, 16) * shape.hidden_vectors * 512;
}

std::int64_t x_bytes_of(const ClusteredShape& shape, std::int64_t chains) {
  const std::int64_t rows = std::min<std::int64_t>(shape.tokens, kClusteredRows);
  return rows * (chains * chain_length(shape.in_features) * 2 + kClusteredPad);
}

// Chains that a block has pairs of.
std::int64_t chains_of_block(int cluster) {
  if (cluster % kChains == 0 || kChains % cluster == 0) {
    return std::max<std::int64_t>(kChains / cluster, 1);
  }
  return std::min<std::int64_t>(kChains, kChains / cluster + 2);
}

// With all the room for x that there is below `most` bytes, one chain at least.
ClusteredTuning tuning_of(const ClusteredShape& shape, const Form& form, std::int64_t most,
                          int pad) {
  ClusteredTuning tuning;
  tuning.tiles = clustered_most_tiles(shape);
  tuning.cluster = form.cluster;
  tuning.groups = form.groups;
  tuning.any_batch = form.any_batch;
  tuning.warps = form.warps;
  tuning.slots = form.slots;
  tuning.piece = form.piece;
  tuning.piece_pitch = static_cast<int>(shape.weight_bytes * (form.piece + pad / 2));
  if (many_lanes(shape)) {
    const std::int64_t lane_tiles = shape.slices * divide_up(shape.max_rank, 8);
    tuning.columns = kClusteredFewColumns;
    tuning.owned = static_cast<int>(divide_up(lane_tiles, std::int64_t{form.cluster}));
  }
  tuning.slot_bytes = static_cast<int>(slot_bytes(shape, tuning.columns, tuning.piece_pitch));
  tuning.hidden_bytes = static_cast<int>(hidden_bytes(shape));
  const int slots = form.warps * form.slots;
  const std::int64_t others = kClusteredBarrierBytes + std::int64_t{tuning.slot_bytes} * slots +
                              sums_bytes(shape, tuning.owned) + tuning.hidden_bytes +
                              shape.staged_bytes(tuning.columns) * form.warps + kSlack;
  const std::int64_t all = x_bytes_of(shape, chains_of_block(form.any_batch ? 1 : form.cluster));
  const std::int64_t x = std::clamp<std::int64_t>(most - others, x_bytes_of(shape, 1), all);
  tuning.x_bytes = static_cast<int>(divide_up(x, 16) * 16);
  tuning.shared_bytes = static_cast<int>(others) + tuning.x_bytes;
  tuning.fits = tuning.shared_bytes <= std::min(most, shape.shared_bytes) && slots <= kMostSlots &&
                tuning.tiles <= kMostTiles;
  return tuning;
}

// Measured: with the smaller pad clusters of six and more gain 1 to 5 %, smaller ones lose up to 6
// %. How many blocks share a multiprocessor does not follow from it.
ClusteredTuning tuning_of(const ClusteredShape& shape, const Form& form, std::int64_t most) {
  constexpr int kLargeCluster = 6;
  const ClusteredTuning streams = tuning_of(shape, form, most, kClusteredPadOfStreams);
  if (form.cluster < kLargeCluster || form.any_batch) {
    return streams;
  }
  const ClusteredTuning tuning = tuning_of(shape, form, most, kClusteredPad);
  const bool two_share = tuning.shared_bytes <= kClusteredMostOfTwo;
  return two_share == (streams.shared_bytes <= kClusteredMostOfTwo) ? tuning : streams;
}

// What clusters are chosen by.
struct Load {
  std::int64_t tiles;
  std::int64_t pairs;  // of a chain and 8 lanes, of a tile
  bool wide;           // B is most of the weights
  bool deep;           // K is long
  bool long_stream;    // weights of a multiprocessor
};

Load load_of(const ClusteredShape& shape) {
  constexpr std::int64_t kLongStream = 260 << 10;
  constexpr std::int64_t kDeep = 8192;
  Load load{};
  load.tiles = clustered_likely_tiles(shape);
  load.pairs = kChains * shape.slices * divide_up(shape.max_rank, 8);
  load.wide = shape.columns > 2 * shape.slices * shape.in_features;
  load.deep = shape.in_features > kDeep;
  load.long_stream = shape.weight_bytes * load.tiles * shape.max_rank *
                         (shape.slices * shape.in_features + shape.columns) /
                         shape.multiprocessors >
                     kLongStream;
  return load;
}

struct Place {
  int cluster = 0;  // none
  int groups = 1;
  int blocks = 1;  // that share a multiprocessor
};

// Blocks of a cluster where each has a multiprocessor of its own: 15 clusters of 8 find a place at
// once, 30 of 4, 66 of 2.
int cluster_alone(std::int64_t tiles, const Load& load) {
  if (tiles <= 15 || (tiles == 16 && load.deep)) {  // six blocks share chains of a long K badly
    return 8;
  }
  return tiles == 16 ? 6 : tiles <= 30 ? 4 : tiles <= 36 ? 3 : tiles <= 66 ? 2 : 1;
}

// Three blocks a multiprocessor, with what finds a place at once and leaves some: 45 clusters of 8,
// 60 of 6 and 90 of 4 would. Only where tiles are counted.
Place three_blocks(const ClusteredShape& shape, const Load& load, std::int64_t tiles) {
  if (!shape.row_tiles.known() || load.wide || many_lanes(shape)) {
    return {};
  }
  if (tiles > 66 && tiles <= 84) {
    return {4, 1, 3};
  }
  const bool few_rows = shape.tokens <= 2 * shape.active;  // more were not measured
  if (tiles > 28 && tiles <= 36 && few_rows && !load.deep && !load.long_stream) {
    return {load.pairs == 32 ? 8 : load.pairs == 24 ? 6 : 0, 1, 3};
  }
  return {};
}

// Measured; for other devices in proportion. A GPC has 16 to 18 multiprocessors, so clusters of
// three, and of five and more that do not divide 16, leave some of them idle when a block takes
// all of its multiprocessor.
Place place_of(const ClusteredShape& shape, const Load& load) {
  const std::int64_t tiles = divide_up(load.tiles * 132, shape.multiprocessors);
  const bool many = many_lanes(shape);
  if (tiles <= 7) {
    const bool small = load.wide ? tiles == 4 || tiles == 5 || (!many && tiles > 1 && tiles < 6)
                                 : load.deep && tiles >= 6;
    const int cluster = small ? 8 : 16;
    const auto room = static_cast<int>(shape.multiprocessors * 15 / 16 / (load.tiles * cluster));
    const int most = load.wide ? (small ? 3 : 7) : many && tiles <= 2 ? 2 : 1;
    return {cluster, std::clamp(room, 1, most), 1};
  }
  if (load.wide && !many && tiles <= 52) {
    // So many clusters of 8, 7 (28), 6 (36) and 5 (44) find a place at once, two blocks a
    // multiprocessor; one more than do takes half as long again.
    const int cluster = tiles <= 28 ? 8 : tiles <= 36 ? 6 : tiles <= 42 ? 5 : 4;
    return {cluster, tiles <= 14 ? 2 : 1, 2};
  }
  if (tiles <= 16) {
    // Tiles that rows may make beyond those find no place where a block has all of one.
    const bool surely = clustered_most_tiles(shape) <= 20;
    const bool deep = load.deep && load.pairs >= 4 * 8;
    const int blocks = (load.long_stream && surely) || deep ? 1 : 2;
    return {blocks == 1 ? cluster_alone(tiles, load) : 8, 1, blocks};
  }
  if (tiles <= 24 || (tiles <= 28 && load.wide)) {
    return {8, 1, 2};
  }
  constexpr std::int64_t kFewPairs = 16;
  if (tiles <= 36 && load.pairs <= kFewPairs && !load.long_stream &&
      (load.deep || shape.tokens <= 5 * shape.active)) {
    return {4, 1, 2};
  }
  if ((tiles <= 36 && load.long_stream) || (tiles <= 33 && load.deep)) {
    return {cluster_alone(tiles, load), 1, 1};
  }
  if (tiles <= 36 && !load.deep) {
    return {6, 1, 2};
  }
  if (tiles <= 66) {
    if (load.wide && tiles <= 44) {
      return {6, 1, 2};
    }
    const bool nearly_long = tiles > 60 && load.pairs > 24;
    return load.long_stream || nearly_long ? Place{2, 1, 1} : Place{tiles <= 56 ? 4 : 3, 1, 2};
  }
  constexpr std::int64_t kTwoWaves = 264;  // of more, one block each takes up to twice as long
  if (load.long_stream && shape.tokens > 2 * shape.active && tiles <= kTwoWaves) {
    // Some more than find a place with two blocks each: with one each half of the device is idle.
    return {shape.row_tiles.known() && tiles <= 99 ? 2 : 1, 1, 1};
  }
  return {tiles <= 132 ? 2 : 1, 1, 2};
}

// As many warps as fit, best so many that all of them have as many pairs.
ClusteredTuning widest(const ClusteredShape& shape, const Place& place, std::int64_t pairs) {
  ClusteredTuning best;
  best.fits = false;
  for (const int warps : {16, 12, 8, 6, 4, kLeastWarps}) {
    const ClusteredTuning tuning =
        tuning_of(shape, {place.cluster, place.groups, warps, 1}, shape.shared_bytes);
    const bool even = warps >= 8 && pairs % (place.cluster * warps) == 0;
    if (tuning.fits && (even || !best.fits)) {
      best = tuning;
    }
    if (best.fits && (even || tuning.owned > 0)) {
      break;
    }
  }
  return best;
}

ClusteredTuning of_one(const ClusteredShape& shape, const Place& place, const Load& load) {
  const Form two_slots{place.cluster, place.groups, 8, 2};
  const std::int64_t least = place.cluster == 3 || place.cluster == 4 ? 32 : 48;
  const bool streams = (load.deep && place.cluster >= 2) ||
                       (place.cluster <= 4 && shape.max_rank >= least) || shape.max_rank > 64 ||
                       (load.tiles <= 7 && !many_lanes(shape));
  const ClusteredTuning tuning = tuning_of(shape, two_slots, shape.shared_bytes);
  return streams && !(load.wide && load.tiles > 7) && tuning.fits
             ? tuning
             : widest(shape, place, load.pairs);
}

ClusteredTuning of_two(const ClusteredShape& shape, const Place& place, const Load& load) {
  const std::int64_t pairs = load.pairs / place.cluster;
  Form form{place.cluster, place.groups, 8, 1};
  const bool few_rows = load.deep || shape.tokens <= 5 * shape.active;
  if (!load.wide && ((pairs <= 4 && few_rows) || place.cluster == 1)) {
    form.warps = 4;
    form.slots = 2;
  } else if (!load.wide && pairs <= 12 && pairs % 6 == 0) {
    form.warps = 6;
  }
  const int least = load.wide ? 8 : many_lanes(shape) ? 6 : 4;
  for (const int warps : {form.warps, 6, 4}) {
    form.warps = std::min(form.warps, warps);
    const ClusteredTuning tuning = tuning_of(shape, form, kClusteredMostOfTwo);
    if (tuning.fits && (form.warps >= least || form.slots == 2)) {
      return tuning;
    }
  }
  ClusteredTuning none;
  none.fits = false;
  return none;
}

// Pieces of A longer than that of the same form, measured (README.md): a warp waits once for each,
// so a chain of 544 to 704 elements is better one piece than a long one and a rest, a long chain a
// few of one length. Where lanes are many a slot has the room anyway.
ClusteredTuning with_longer_pieces(const ClusteredShape& shape, const ClusteredTuning& own,
                                   const Place& place, const Load& load) {
  constexpr int kShort = 704;
  constexpr int kInOne = 1024;
  constexpr int kLong = 2048;
  const auto chain = static_cast<int>(chain_length(shape.in_features));
  const int whole = static_cast<int>(divide_up(chain, 64) * 64);
  const auto share_of_chain = [&](int pieces) {
    return std::min(whole, static_cast<int>(divide_up(divide_up(chain, pieces), 128) * 128));
  };
  const std::int64_t most = place.blocks == 2 ? kClusteredMostOfTwo : shape.shared_bytes;
  ClusteredTuning tuning = own;
  const auto take = [&](int warps, int slots, int piece) {
    const Form form{own.cluster, own.groups, warps, slots, piece};
    const ClusteredTuning longer = tuning_of(shape, form, most);
    tuning = longer.fits ? longer : tuning;
    return longer.fits;
  };
  const bool rest = whole > kClusteredPiece && whole <= kShort;
  if (place.blocks == 2) {
    if (rest && !take(own.warps, own.slots, whole) && own.slots == 2) {
      take(6, 1, whole);
    }
  } else if (own.owned > 0 && own.slots == 1) {
    const auto room = own.piece + (own.slot_bytes / 8 - own.piece_pitch) / shape.weight_bytes;
    take(own.warps, 1, share_of_chain(static_cast<int>(divide_up(chain, room))));
  } else if (own.slots == 2 && chain > kLong && own.cluster >= 8) {
    const int third = share_of_chain(3);
    if (!take(6, 2, third)) {
      take(4, 2, third);
    }
  } else if (own.slots == 2 && own.owned > 0) {
    if (!load.wide && whole <= kShort) {
      take(12, 1, whole);
    }
  } else if (own.slots == 2 && load.wide && load.tiles <= 5 && whole <= kInOne) {
    if (load.tiles > 3 || whole > kShort || !take(16, 1, whole)) {
      take(12, 1, whole);
    }
  } else if (rest && own.slots == 1) {
    take(own.warps, 1, whole);
  } else if (rest && shape.tokens >= 2 * shape.active) {
    take(12, 1, whole);
  }
  return tuning;
}

// Measured with batches from one adapter to as many as the limits let in (README.md): clusters that
// leave the next kernel a quarter of the device, and share tiles on half of it.
ClusteredTuning of_any_batch(const ClusteredShape& shape, const Load& load) {
  ClusteredTuning tuning;
  tuning.fits = false;
  if (many_lanes(shape)) {
    return tuning;
  }
  const bool sixes = !load.deep && (load.wide || load.pairs % 48 == 0);
  const std::int64_t most_blocks = shape.multiprocessors * 16 / 11;
  const auto with = [&](Form form, std::int64_t most, std::int64_t blocks) {
    form.any_batch = true;
    form.groups = load.wide ? 7 : 3;
    tuning = tuning_of(shape, form, most);
    tuning.most_shared =
        static_cast<int>(std::min(blocks, load.wide ? most_blocks : shape.multiprocessors));
    tuning.tiles =
        std::max({std::int64_t{1}, std::min(blocks / form.cluster, tuning.tiles * form.groups),
                  divide_up(tuning.tiles, std::int64_t{form.cluster})});
    return tuning.fits;
  };
  if (load.deep && with({8, 1, 4, 2}, kClusteredMostOfTwo, most_blocks)) {
    return tuning;
  }
  for (const int warps : {8, 6}) {
    if (with({sixes ? 6 : 8, 1, warps, 1}, kClusteredMostOfTwo, most_blocks)) {
      return tuning;
    }
  }
  for (const int warps : {12, 8, 6, 4}) {  // a block a multiprocessor
    if (with({8, 1, warps, 1}, shape.shared_bytes, shape.multiprocessors * 10 / 11)) {
      return tuning;
    }
  }
  return tuning;
}

}  // namespace

std::int64_t clustered_likely_tiles(const ClusteredShape& shape, std::int64_t rows) {
  if (shape.row_tiles.known()) {
    return std::max<std::int64_t>(1, shape.row_tiles.of(rows));
  }
  const std::int64_t adapters = std::min(shape.active, shape.tokens);
  return std::max<std::int64_t>({1, adapters, shape.tokens / rows + adapters / 2});
}

std::int64_t clustered_most_tiles(const ClusteredShape& shape) {
  return shape.row_tiles.known()
             ? shape.row_tiles.of(kClusteredRows)
             : std::min(shape.tokens, shape.tokens / kClusteredRows + shape.active);
}

std::int64_t clustered_sums_pitch(std::int64_t slices, std::int64_t max_rank) {
  const std::int64_t lanes = slices * divide_up(max_rank, 8) * 8;
  return divide_up(lanes + 16, 32) * 32 - 16;  // 16 beyond a multiple of 32: other banks
}

bool clustered_takes(ClusteredShape shape) {
  shape.tokens = kClusteredRows;
  shape.active = 1;
  shape.row_tiles = {};
  return shape.columns / kClusteredFewColumns + shape.slices <= kMostUnits &&
         tuning_of(shape, {16, 1, kLeastWarps, 1}, shape.shared_bytes).fits;
}

ClusteredTuning clustered_tuning(const ClusteredShape& shape) {
  if (shape.tokens == 0 || shape.active == 0) {
    return {};
  }
  const Load load = load_of(shape);
  if (shape.any_batch) {
    const ClusteredTuning tuning = of_any_batch(shape, load);
    if (tuning.fits) {
      return tuning;
    }
  }
  const std::int64_t tiles = divide_up(load.tiles * 132, shape.multiprocessors);
  if (const Place three = three_blocks(shape, load, tiles); three.cluster > 0) {
    for (int warps = 4; warps >= (load.deep ? 4 : 3); --warps) {
      const Form form{three.cluster, three.groups, warps, 1};
      const ClusteredTuning tuning = tuning_of(shape, form, kClusteredMostOfThree);
      if (tuning.fits) {
        return tuning;
      }
    }
  }
  Place place = place_of(shape, load);
  if (place.blocks == 2) {
    const ClusteredTuning tuning = of_two(shape, place, load);
    if (tuning.fits) {
      return with_longer_pieces(shape, tuning, place, load);
    }
    place.blocks = 1;
    place.groups = 1;
    place.cluster = cluster_alone(load.tiles, load);
  }
  ClusteredTuning tuning = of_one(shape, place, load);
  while (!tuning.fits && place.cluster < 16) {
    place.cluster = std::min(16, 2 * place.cluster);
    tuning = of_one(shape, place, load);
  }
  return tuning.fits ? with_longer_pieces(shape, tuning, place, load) : tuning;
}

ClusteredTuning clustered_tuning_of(const ClusteredShape& shape, const ClusteredSaid& said) {
  const ClusteredTuning own = clustered_tuning(shape);
  Form form{own.cluster, own.groups, own.warps, own.slots, own.piece};
  form.cluster = said.cluster > 0 ? said.cluster : form.cluster;
  form.groups = said.groups > 0 ? said.groups : form.groups;
  form.warps = said.warps > 0 ? said.warps : form.warps;
  form.slots = said.slots > 0 ? said.slots : form.slots;
  form.piece = said.piece > 0 ? said.piece : form.piece;
  const bool same = form.cluster == own.cluster && form.groups == own.groups &&
                    form.warps == own.warps && form.slots == own.slots && form.piece == own.piece;
  if (own.tiles == 0 || (same && said.blocks == 0)) {
    return own;
  }
  const auto of_blocks = [&](int blocks) {
    return tuning_of(shape, form, blocks == 2 ? kClusteredMostOfTwo : shape.shared_bytes);
  };
  const ClusteredTuning tuning = of_blocks(said.blocks > 0 ? said.blocks : 2);
  return tuning.fits || said.blocks > 0 ? tuning : of_blocks(1);
}

}  // namespace lora_bench::kernels
