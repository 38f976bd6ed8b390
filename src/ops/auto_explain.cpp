#include "ops/auto_tuning.h"

#include <fmt/format.h>

#include <utility>

#include "core/units.h"
#include "kernels/divide_up.h"
#include "ops/kernel_params.h"

namespace lora_bench {
namespace {

std::string bytes(std::int64_t count) { return format_bytes(static_cast<double>(count)); }

std::string clustered_line(const kernels::ClusteredTuning& tuning) {
  if (tuning.any_batch) {
    return fmt::format(
        "1 launch for any batch within the limits, linked to the one before: grid {} x {}, {} of "
        "{}, in parts of as many blocks as all tiles of a batch find, up to {} of them a tile on "
        "{}; {} a block, each with a ring of {} of {}; {} of shared memory a block",
        tuning.cluster, tuning.tiles, counted(tuning.tiles, "cluster"),
        counted(tuning.cluster, "block"), tuning.groups, counted(tuning.most_shared, "block"),
        counted(tuning.warps, "warp"), counted(tuning.slots, "slot"), bytes(tuning.slot_bytes),
        bytes(tuning.shared_bytes));
  }
  return fmt::format(
      "1 launch, linked to the one before: grid {} x {}{}, {} of {}; {} a block, each with a ring "
      "of {} of {}; {} of shared memory a block, {} of it for x",
      tuning.cluster, tuning.tiles, tuning.groups > 1 ? fmt::format(" x {}", tuning.groups) : "",
      counted(tuning.tiles * tuning.groups, "cluster"), counted(tuning.cluster, "block"),
      counted(tuning.warps, "warp"), counted(tuning.slots, "slot"), bytes(tuning.slot_bytes),
      bytes(tuning.shared_bytes), bytes(tuning.x_bytes));
}

std::string resident_line(const kernels::ResidentTuning& tuning) {
  return fmt::format(
      "1 launch, linked to the one before: grid {} x {} x {}, {} of {} and up to {} rows; {} a "
      "block; all weights in shared memory before it begins, {} a block",
      tuning.cluster, tuning.tiles, tuning.groups, counted(tuning.tiles * tuning.groups, "cluster"),
      counted(tuning.cluster, "block"), 8 * tuning.eights, counted(tuning.warps, "warp"),
      bytes(tuning.shared_bytes));
}

std::string shrink_line(const kernels::PanelShrinkTuning& tuning) {
  if (tuning.blocks == 0) {
    return "shrink: nothing to do";
  }
  if (tuning.tile == kernels::kPanelPlain) {
    return fmt::format("shrink: {}, tiles of 16 rows x 8 lanes, read an element at a time",
                       counted(tuning.blocks, "block"));
  }
  const auto& tile = kernels::kPanelShrinkTiles[static_cast<std::size_t>(tuning.tile)];
  return fmt::format(
      "shrink: {} of {}, tiles of {} rows x {} lanes, {} = {} x {} x split {}{}; h in {}, {}, {} "
      "of "
      "shared memory",
      counted(tuning.blocks, "block"),
      counted(std::int64_t{tile.warps_of_rows} * tile.warps_of_lanes + tile.warps_that_bring,
              "warp"),
      tile.rows, tile.lanes, tuning.blocks,
      counted(tuning.blocks / tuning.lane_tiles / tuning.split, "row tile"),
      counted(tuning.lane_tiles, "lane tile"), tuning.split,
      tile.joined    ? ", a cluster that adds its chains"
      : tile.grouped ? ", four warps multiply together"
                     : "",
      counted(kernels::panel_parts(tuning.levels), "part"), counted(tile.stages, "stage"),
      bytes(tuning.shared_bytes));
}

std::string expand_line(const AutoDevice& device, const Problem& problem,
                        const kernels::PanelExpandTuning& tuning) {
  if (tuning.blocks == 0) {
    return "expand: nothing to do";
  }
  if (tuning.tile == kernels::kPanelPlain) {
    return fmt::format("expand: {}, tiles of 16 rows x 64 columns, written an element at a time",
                       counted(tuning.blocks, "block"));
  }
  const auto& tile = kernels::kPanelExpandTiles[static_cast<std::size_t>(tuning.tile)];
  const int numbers = expand_numbers(device, problem);
  const bool groups = numbers > 0;
  const kernels::PanelExpandBlockShape block =
      kernels::panel_expand_block(tile, numbers, has_shrink(problem.op));
  return fmt::format(
      "expand: {} of {}, tiles of {} rows x {} columns, up to {} lanes; {} = {} x {} that share "
      "{}{}{}; "
      "{}, {} of shared memory",
      counted(tuning.blocks, "block"), counted(block.warps, "warp"), 16 * tile.warps_of_rows,
      tile.wide * tile.warps_of_columns, 16 * tile.steps, tuning.blocks,
      counted(tuning.blocks / tuning.chunks, "row tile"), counted(tuning.chunks, "chunk"),
      counted(tuning.column_tiles, "column tile"), groups ? ", four warps multiply together" : "",
      block.kind == kernels::PanelExpandKind::kAlike   ? ""
      : block.kind == kernels::PanelExpandKind::kApart ? " what four others bring"
                                                       : " what four others bring, h held",
      counted(block.stages, "stage"), bytes(block.shared_bytes));
}

std::vector<std::string> panel_lines(const AutoDevice& device, const Problem& problem) {
  std::vector<std::string> lines;
  std::int64_t launches = 0;
  if (has_shrink(problem.op)) {
    const auto tuning =
        auto_shrink_tuning(device, problem, problem.tuning, shrinks_in_vectors(problem));
    lines.push_back(shrink_line(tuning));
    launches += tuning.blocks > 0 ? 1 : 0;
  }
  if (has_expand(problem.op)) {
    const auto tuning =
        auto_expand_tuning(device, problem, problem.tuning, expands_in_vectors(problem));
    lines.push_back(expand_line(device, problem, tuning));
    launches += tuning.blocks > 0 ? 1 : 0;
  } else {
    const std::int64_t elements = problem.slices() * problem.tokens * problem.max_rank;
    lines.push_back(
        fmt::format("h: {} add its parts", counted(kernels::divide_up(elements, 256), "block")));
    launches += elements > 0 ? 1 : 0;
  }
  lines.push_back(
      fmt::format("{}; {} of workspace",
                  launches == 1 ? "1 launch" : fmt::format("{} linked launches", launches),
                  bytes(auto_workspace_bytes(device, problem, problem.tuning))));
  return lines;
}

// "" where something is launched.
std::string why_no_launch(const AutoDevice& device, const Problem& problem) {
  if (problem.groups() == 0) {
    return "no launch: no token has an adapter";
  }
  DeviceFacts facts;
  facts.compute_capability = device.compute_capability;
  const Support support = tensor_cores_take(problem, facts);
  return support.yes ? why_not_tuned(device, problem) : support.why_not;
}

void say_clustered(Tuning& tuning, const kernels::ClusteredTuning& chosen) {
  tuning.family = TunedFamily::kClustered;
  tuning.cluster = chosen.cluster;
  tuning.groups = chosen.groups;
  tuning.warps = chosen.warps;
  tuning.slots = chosen.slots;
}

// A half without a tile has no number that could be said, and is the same without.
void say_panel(Tuning& tuning, const AutoDevice& device, const Problem& problem) {
  tuning.family = TunedFamily::kPanel;
  if (has_shrink(problem.op)) {
    const auto chosen =
        auto_shrink_tuning(device, problem, problem.tuning, shrinks_in_vectors(problem));
    if (chosen.tile != kernels::kPanelPlain) {
      tuning.shrink_tile =
          tile_name(kernels::kPanelShrinkTiles[static_cast<std::size_t>(chosen.tile)]);
      tuning.split = chosen.split;
      tuning.parts = kernels::panel_parts(chosen.levels);
    }
  }
  if (has_expand(problem.op)) {
    const auto chosen =
        auto_expand_tuning(device, problem, problem.tuning, expands_in_vectors(problem));
    if (chosen.tile != kernels::kPanelPlain) {
      tuning.expand_tile =
          tile_name(kernels::kPanelExpandTiles[static_cast<std::size_t>(chosen.tile)]);
      tuning.chunks = chosen.chunks;
    }
  }
}

}  // namespace

std::vector<std::string> explain_auto(const AutoDevice& device, const Problem& problem) {
  if (std::string why_not = why_no_launch(device, problem); !why_not.empty()) {
    return {std::move(why_not)};
  }
  const AutoFamily family = auto_family(device, problem);
  std::vector<std::string> lines{fmt::format("{}, {}", name(family), reason_text(device, problem))};
  if (family != AutoFamily::kPanel) {
    lines.push_back(family == AutoFamily::kResident
                        ? resident_line(auto_resident_tuning(device, problem))
                        : clustered_line(auto_clustered_tuning(device, problem)));
    lines.push_back(
        fmt::format("{} of workspace, for panel where an address does not begin on 16 bytes",
                    bytes(auto_workspace_bytes(device, problem, problem.tuning))));
    return lines;
  }
  const std::vector<std::string> launches = panel_lines(device, problem);
  lines.insert(lines.end(), launches.begin(), launches.end());
  return lines;
}

Tuning tuning_of_choice(const AutoDevice& device, const Problem& problem) {
  if (!why_no_launch(device, problem).empty()) {
    return {};
  }
  Tuning tuning = problem.tuning;  // `blocks` is not seen in what is chosen
  switch (auto_family(device, problem)) {
    case AutoFamily::kResident:
      tuning.family = TunedFamily::kResident;
      break;
    case AutoFamily::kClustered:
      say_clustered(tuning, auto_clustered_tuning(device, problem));
      break;
    case AutoFamily::kPanel:
      say_panel(tuning, device, problem);
      break;
  }
  return tuning;
}

}  // namespace lora_bench
