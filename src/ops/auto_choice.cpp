#include "ops/auto_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/kernel_params.h"

namespace lora_bench {
namespace {

// Whether the sizes let clusters copy what they read, wherever operands begin on 16 bytes:
// addresses of nothing do.
bool clusters_can_copy(const Problem& problem) {
  const Operands operands = no_operands(problem);
  return size_bytes(problem.dtype[Role::kX]) == 2 &&
         copies_in_bulk(shrink_params(problem, operands), expand_params(problem, operands), 2,
                        size_bytes(problem.dtype[Role::kA]));
}

// A tile of clusters has 8 rows: more of an adapter read its weights from the L2 again and again,
// which `panel` does not. Measured: 16 rows an adapter are better there, 256 are not; in between it
// is `panel` where that makes the bytes more by so much and they are many.
bool few_rows(const AutoDevice& device, const Problem& problem) {
  constexpr std::int64_t kRowsOfAnAdapter = 24;
  if (problem.tokens > kRowsOfAnAdapter * problem.groups()) {
    return false;
  }
  constexpr std::int64_t kLanesOfPanel = 256;  // the most that its tiles have
  constexpr std::int64_t kLanesOfAShare = 128;
  const kernels::ClusteredShape shape = auto_clustered_shape(device, problem);
  const std::int64_t least = shape.slices == 1 ? 24 : 32;  // lanes of a slice, that fill its tiles
  if (shape.max_rank < least || shape.max_rank > kLanesOfPanel || shape.max_rank % 8 != 0) {
    return true;
  }
  const double weights = 2.0 * static_cast<double>(shape.max_rank) *
                         static_cast<double>(shape.slices * shape.in_features + shape.columns);
  const double rows = 2.0 * static_cast<double>(shape.tokens) *
                      static_cast<double>(shape.in_features + 2 * shape.columns);
  const double tiles = static_cast<double>(kernels::clustered_likely_tiles(shape)) * weights;
  const double once = static_cast<double>(shape.active) * weights;
  // Large weights and some rows of each: seldom as many of one adapter as of another, so there are
  // more tiles than that.
  constexpr double kLarge = 200e6;
  constexpr double kRowsOfEach = 2.8;
  const bool shared_lanes = shape.max_rank > kLanesOfAShare;
  if (once > kLarge &&
      static_cast<double>(shape.tokens) >= kRowsOfEach * static_cast<double>(shape.active) &&
      shape.max_rank >= 64 && !shared_lanes) {
    return false;
  }
  constexpr std::int64_t kFewAdapters = 12;
  const bool few_adapters = shape.active <= kFewAdapters;
  const double many = shared_lanes && few_adapters ? 12e6 : 30e6;
  const double more = !shared_lanes ? 1.6 : few_adapters ? 1.4 : 2;
  return tiles < many || tiles + rows < more * (once + rows);
}

// How many row tiles the plan has, where the launch is for no other batch.
kernels::RowTiles row_tiles_of(const Problem& problem) {
  return problem.max_active > 0 ? kernels::RowTiles()
                                : kernels::RowTiles(problem.plan.group_starts);
}

// -1 for "" and for what is no tile.
template <typename Tiles>
int tile_of(const Tiles& tiles, const std::string& said) {
  const auto found = std::find_if(tiles.begin(), tiles.end(),
                                  [&](const auto& tile) { return tile_name(tile) == said; });
  return said.empty() || found == tiles.end() ? -1 : static_cast<int>(found - tiles.begin());
}

// Of a part that is the sum of 1 << levels chains.
int levels_of(std::int64_t parts) {
  int levels = 0;
  while (parts << levels < kernels::kChains) {
    ++levels;
  }
  return levels;
}

}  // namespace

kernels::ClusteredShape auto_clustered_shape(const AutoDevice& device, const Problem& problem) {
  kernels::ClusteredShape shape;
  shape.tokens = problem.tokens;
  shape.active = problem.groups();
  shape.slices = problem.slices();
  shape.max_rank = problem.max_rank;
  shape.in_features = problem.in_features;
  for (const std::int64_t width : problem.widths) {
    shape.columns += width;
  }
  const bool wide = problem.dtype[Role::kH] == Dtype::kFp32;
  const std::int64_t parts = problem.dtype[Role::kX] == Dtype::kBf16 ? 3 : 6;
  shape.weight_bytes = size_bytes(problem.dtype[Role::kA]);
  shape.hidden_vectors = wide ? parts : 1;
  shape.multiprocessors = device.multiprocessors;
  shape.shared_bytes = device.shared_bytes;
  shape.any_batch = problem.max_active > 0;
  shape.row_tiles = row_tiles_of(problem);
  return shape;
}

int expand_numbers(const AutoDevice& device, const Problem& problem) {
  if (!device.groups || device.compute_capability != 90 ||
      problem.dtype_of_cast() != Dtype::kBf16) {
    return 0;
  }
  return problem.dtype[Role::kH] == Dtype::kFp32 ? 3 : 1;
}

kernels::PanelShape auto_panel_shape(const AutoDevice& device, const Problem& problem,
                                     bool vectors) {
  kernels::PanelShape shape;
  shape.tokens = problem.tokens;
  shape.active = problem.groups();
  shape.slices = problem.slices();
  shape.max_rank = problem.max_rank;
  shape.in_features = problem.in_features;
  shape.multiprocessors = device.multiprocessors;
  shape.shared_bytes = device.shared_bytes;
  shape.multiprocessor_bytes = device.multiprocessor_bytes;
  shape.vectors = vectors;
  shape.clusters = device.compute_capability >= 90;
  // Rows of x are found there by 32 bits that count 16 bytes.
  constexpr std::int64_t kElementsFound = std::int64_t{1} << 35;
  shape.groups = device.groups && device.compute_capability == 90 &&
                 problem.tokens * problem.x_stride < kElementsFound;
  shape.expand_groups = expand_numbers(device, problem) > 0;
  shape.eight_bits = problem.has_scaled_weights();
  shape.row_tiles = row_tiles_of(problem);
  return shape;
}

kernels::ClusteredTuning auto_clustered_tuning(const AutoDevice& device, const Problem& problem) {
  const kernels::ClusteredShape shape = auto_clustered_shape(device, problem);
  const AutoKnobs said = knobs_of(problem.tuning);
  if (said.family != AutoFamily::kClustered) {
    return kernels::clustered_tuning(shape);
  }
  return kernels::clustered_tuning_of(shape, {.cluster = static_cast<int>(said.cluster),
                                              .groups = static_cast<int>(said.groups),
                                              .warps = static_cast<int>(said.warps),
                                              .slots = static_cast<int>(said.slots),
                                              .blocks = static_cast<int>(said.blocks)});
}

kernels::ResidentTuning auto_resident_tuning(const AutoDevice& device, const Problem& problem) {
  const std::optional<AutoFamily> asked = knobs_of(problem.tuning).family;
  kernels::ResidentTuning none;
  none.fits = false;
  return !asked || asked == AutoFamily::kResident
             ? kernels::resident_tuning(auto_clustered_shape(device, problem))
             : none;
}

kernels::PanelShrinkTuning auto_shrink_tuning(const AutoDevice& device, const Problem& problem,
                                              const Tuning& tuning, bool vectors) {
  const kernels::PanelShape shape = auto_panel_shape(device, problem, vectors);
  const AutoKnobs knobs = knobs_of(tuning);
  kernels::PanelShrinkSaid said;
  said.tile = tile_of(kernels::kPanelShrinkTiles, knobs.shrink_tile);
  said.split = static_cast<int>(knobs.split);
  said.levels = knobs.parts > 0 ? levels_of(knobs.parts) : -1;
  const kernels::PanelShrinkTuning chosen = kernels::panel_shrink_tuning(shape, said);
  return chosen.tile == kernels::kPanelPlain ? kernels::panel_shrink_tuning(shape) : chosen;
}

kernels::PanelExpandTuning auto_expand_tuning(const AutoDevice& device, const Problem& problem,
                                              const Tuning& tuning, bool vectors) {
  const kernels::PanelShape shape = auto_panel_shape(device, problem, vectors);
  const std::int64_t* widths = problem.widths.data();
  const AutoKnobs knobs = knobs_of(tuning);
  const kernels::PanelExpandSaid said{tile_of(kernels::kPanelExpandTiles, knobs.expand_tile),
                                      knobs.chunks};
  const kernels::PanelExpandTuning chosen = kernels::panel_expand_tuning(shape, widths, said);
  return chosen.tile == kernels::kPanelPlain ? kernels::panel_expand_tuning(shape, widths) : chosen;
}

std::int64_t auto_workspace_bytes(const AutoDevice& device, const Problem& problem,
                                  const Tuning& tuning) {
  const bool may_be_panel =
      !problem.has_scaled_weights() || auto_family(device, problem) == AutoFamily::kPanel;
  return has_shrink(problem.op) && problem.groups() > 0 && may_be_panel
             ? kernels::panel_workspace_elements(
                   auto_panel_shape(device, problem, true),
                   auto_shrink_tuning(device, problem, tuning, true)) *
                   static_cast<std::int64_t>(sizeof(float))
             : 0;
}

AutoReason auto_reason(const AutoDevice& device, const Problem& problem) {
  const std::optional<AutoFamily> asked = knobs_of(problem.tuning).family;
  const bool eight_bits = problem.has_scaled_weights();
  if (problem.weights_scale == WeightsScale::kBlock) {
    return AutoReason::kBlocksOfScales;
  }
  if (asked == AutoFamily::kPanel && !eight_bits) {
    return AutoReason::kPanelAsked;
  }
  if (device.compute_capability < 90) {
    return AutoReason::kNoClusters;
  }
  if (problem.op != Op::kLinear) {
    return AutoReason::kNotLinear;
  }
  if (!clusters_can_copy(problem)) {
    return AutoReason::kNoVectors;
  }
  const bool panel_takes = !eight_bits || panel_takes_eight_bits(problem);
  if (asked == AutoFamily::kPanel) {
    return panel_takes ? AutoReason::kPanelAsked : AutoReason::kNoPanel;
  }
  const bool few = few_rows(device, problem);
  if (!asked && !few && panel_takes) {
    return AutoReason::kManyRows;
  }
  const bool takes = kernels::clustered_takes(auto_clustered_shape(device, problem)) &&
                     auto_clustered_tuning(device, problem).fits;
  if (!takes || (asked == AutoFamily::kResident && !auto_resident_tuning(device, problem).fits)) {
    return AutoReason::kNoRoom;
  }
  return asked ? AutoReason::kClustersAsked : few ? AutoReason::kFewRows : AutoReason::kEightBits;
}

bool is_for_clusters(AutoReason reason) {
  return reason == AutoReason::kFewRows || reason == AutoReason::kEightBits ||
         reason == AutoReason::kClustersAsked;
}

bool panel_takes_eight_bits(const Problem& problem) {
  return problem.max_rank % 8 == 0 && problem.max_rank <= kernels::panel_lanes_of_eight_bits() &&
         problem.dtype[Role::kH] == Dtype::kFp32;
}

bool takes_eight_bits(const AutoDevice& device, const Problem& problem) {
  const AutoReason reason = auto_reason(device, problem);
  return is_for_clusters(reason) || reason == AutoReason::kManyRows ||
         reason == AutoReason::kPanelAsked ||
         (reason == AutoReason::kNoRoom &&
          (knobs_of(problem.tuning).family || panel_takes_eight_bits(problem)));
}

AutoFamily auto_family(const AutoDevice& device, const Problem& problem) {
  if (!is_for_clusters(auto_reason(device, problem))) {
    return AutoFamily::kPanel;
  }
  return auto_resident_tuning(device, problem).fits ? AutoFamily::kResident
                                                    : AutoFamily::kClustered;
}

AutoKnobs chosen_knobs(const AutoDevice& device, const Problem& problem) {
  AutoKnobs knobs;
  knobs.family = auto_family(device, problem);
  if (knobs.family == AutoFamily::kClustered) {
    const auto chosen = auto_clustered_tuning(device, problem);
    knobs.cluster = chosen.cluster;
    knobs.groups = chosen.groups;
    knobs.warps = chosen.warps;
    knobs.slots = chosen.slots;
    knobs.blocks = knobs_of(problem.tuning).blocks;  // not seen in what is chosen
  }
  if (knobs.family != AutoFamily::kPanel) {
    return knobs;
  }
  if (has_shrink(problem.op)) {
    const auto chosen =
        auto_shrink_tuning(device, problem, problem.tuning, shrinks_in_vectors(problem));
    if (chosen.tile != kernels::kPanelPlain) {
      knobs.shrink_tile =
          tile_name(kernels::kPanelShrinkTiles[static_cast<std::size_t>(chosen.tile)]);
      knobs.split = chosen.split;
      knobs.parts = kernels::panel_parts(chosen.levels);
    }
  }
  if (has_expand(problem.op)) {
    const auto chosen =
        auto_expand_tuning(device, problem, problem.tuning, expands_in_vectors(problem));
    if (chosen.tile != kernels::kPanelPlain) {
      knobs.expand_tile =
          tile_name(kernels::kPanelExpandTiles[static_cast<std::size_t>(chosen.tile)]);
      knobs.chunks = chosen.chunks;
    }
  }
  return knobs;
}

bool shrinks_in_vectors(const Problem& problem) {
  return reads_vectors(shrink_params(problem, no_operands(problem)),
                       size_bytes(problem.dtype[Role::kX]));
}

bool expands_in_vectors(const Problem& problem) {
  return expands_in_vectors(expand_params(problem, no_operands(problem)),
                            size_bytes(problem.dtype_of_cast()));
}

std::string tile_name(const kernels::PanelShrinkTile& tile) {
  return fmt::format("{}x{}{}", tile.rows, tile.lanes,
                     tile.joined    ? "-joined"
                     : tile.grouped ? "-grouped"
                                    : "");
}

std::string tile_name(const kernels::PanelExpandTile& tile) {
  return fmt::format("{}x{}x{}", 16 * tile.warps_of_rows, tile.wide * tile.warps_of_columns,
                     16 * tile.steps);
}

const kernels::PanelShrinkTile* shrink_tile_named(const std::string& name) {
  const auto& tiles = kernels::kPanelShrinkTiles;
  const auto* const found = std::find_if(tiles.begin(), tiles.end(),
                                         [&](const auto& tile) { return tile_name(tile) == name; });
  return found == tiles.end() ? nullptr : &*found;
}

}  // namespace lora_bench
