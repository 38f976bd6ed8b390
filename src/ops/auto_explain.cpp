#include "ops/auto_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/units.h"
#include "kernels/divide_up.h"
#include "ops/kernel_params.h"

namespace lora_bench {
namespace {

std::string eight_bits_of_panel() {
  return fmt::format(
      "of weights of eight bits panel takes ranks up to {}, a max_rank that is a multiple of 8, "
      "and "
      "an fp32 h",
      kernels::panel_lanes_of_eight_bits());
}

bool panel_is_allowed(const Problem& problem) {
  return !problem.has_scaled_weights() || panel_takes_eight_bits(problem);
}

std::string bytes(std::int64_t count) { return format_bytes(static_cast<double>(count)); }

std::string rows_an_adapter(const char* how_many, const Problem& problem) {
  return fmt::format("{} rows an adapter: {} over {}", how_many, counted(problem.tokens, "token"),
                     counted(problem.groups(), "adapter"));
}

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

std::string shrink_line(const kernels::PanelShrinkTuning& tuning, bool eight_bits) {
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
      counted(std::int64_t{tile.warps_of_rows} * tile.warps_of_lanes +
                  kernels::panel_warps_that_bring(tile, eight_bits),
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
    lines.push_back(shrink_line(tuning, problem.has_scaled_weights()));
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

std::string why_not_clustered(const AutoDevice& device, const Problem& problem) {
  const AutoReason reason = auto_reason(device, problem);
  if (reason == AutoReason::kClustersAsked) {
    return "";
  }
  const kernels::ClusteredTuning tuning = auto_clustered_tuning(device, problem);
  if (reason != AutoReason::kNoRoom || tuning.shared_bytes == 0) {
    return fmt::format("tuning.family clustered: {}; allowed: panel", reason_text(device, problem));
  }
  return fmt::format(
      "tuning {{{}}}: {} with {} each take {} of shared memory a block; allowed: {}, half of it "
      "with tuning.blocks 2, and {} in all",
      tuning_text(problem.tuning), counted(tuning.warps, "warp"), counted(tuning.slots, "slot"),
      bytes(tuning.shared_bytes), bytes(device.shared_bytes),
      counted(kernels::kClusteredBarrierBytes / 8 - 1, "slot"));
}

std::string why_not_resident(const AutoDevice& device, const Problem& problem) {
  switch (auto_reason(device, problem)) {
    case AutoReason::kClustersAsked:
      return "";
    case AutoReason::kNoRoom:
      return fmt::format(
          "tuning.family resident: the weights of {} of rank {} are more than the shared memory of "
          "clusters that run at once; allowed: {}",
          counted(problem.groups(), "adapter"), problem.max_rank,
          panel_is_allowed(problem) ? "clustered, panel" : "clustered");
    default:
      return fmt::format("tuning.family resident: {}; allowed: panel",
                         reason_text(device, problem));
  }
}

std::string why_not_shrink(const AutoDevice& device, const Problem& problem) {
  const Tuning& tuning = problem.tuning;
  if (tuning_of_op(tuning, Op::kExpand) == tuning) {
    return "";
  }
  if (!shrinks_in_vectors(problem)) {
    return "tuning {" + tuning_text(tuning) +
           "}: rows of x or A are no multiple of 16 bytes; "
           "allowed: no tuning of shrink";
  }
  if (auto_shrink_tuning(device, problem, tuning, true).blocks == 0) {
    return "";
  }
  const std::string asked = knobs_of(tuning).shrink_tile;
  const kernels::PanelShrinkTile* tile = shrink_tile_named(asked);
  if (tile != nullptr && tile->joined && device.compute_capability < 90) {
    return fmt::format(
        "tuning.shrink_tile {}: compute capability {}.{} has no clusters of blocks; allowed: tiles "
        "that are not joined",
        asked, device.compute_capability / 10, device.compute_capability % 10);
  }
  if (tile != nullptr && tile->grouped && !auto_panel_shape(device, problem, true).groups) {
    return fmt::format(
        "tuning.shrink_tile {}: needs compute capability 9.0, code for sm_90a, and an x below "
        "64 GiB; allowed: tiles that are not grouped",
        asked);
  }
  if (tile != nullptr && problem.has_scaled_weights() && !kernels::eight_bits_take(*tile)) {
    return fmt::format(
        "tuning.shrink_tile {}: takes no weights of eight bits; allowed: tiles that are joined or "
        "grouped",
        asked);
  }
  const Tuning said = tuning_of_op(tuning, Op::kShrink);
  const Tuning launched = tuning_of(chosen_knobs(device, problem));
  const bool as_said = std::all_of(said.begin(), said.end(), [&](const KnobValue& value) {
    return std::find(launched.begin(), launched.end(), value) != launched.end();
  });
  return as_said ? ""
                 : fmt::format(
                       "tuning {{{}}}: shrink takes more shared memory than a block may "
                       "have; allowed: {}",
                       tuning_text(tuning), bytes(device.shared_bytes));
}

std::string why_not_expand(const AutoDevice& device, const Problem& problem) {
  if (tuning_of_op(problem.tuning, Op::kShrink) == problem.tuning) {
    return "";
  }
  const auto chosen =
      auto_expand_tuning(device, problem, problem.tuning, expands_in_vectors(problem));
  const AutoKnobs tuning = knobs_of(problem.tuning);
  if (chosen.blocks == 0) {
    return "";
  }
  if (chosen.tile == kernels::kPanelPlain) {
    return fmt::format(
        "tuning.expand_tile, tuning.chunks: rank {} or rows of y have no tile; "
        "allowed: neither",
        problem.max_rank);
  }
  const auto& tile = kernels::kPanelExpandTiles[static_cast<std::size_t>(chosen.tile)];
  if (!tuning.expand_tile.empty() && tile_name(tile) != tuning.expand_tile) {
    return fmt::format(
        "tuning.expand_tile {}: allowed: tiles of {} lanes or more in {} of shared "
        "memory",
        tuning.expand_tile, problem.max_rank, bytes(device.shared_bytes));
  }
  return tuning.chunks == 0 || chosen.chunks == tuning.chunks
             ? ""
             : fmt::format("tuning.chunks {}: allowed: 1 to {}, the column tiles", tuning.chunks,
                           chosen.column_tiles);
}

// "" where something is launched.
std::string why_no_launch(const AutoDevice& device, const Problem& problem) {
  if (problem.groups() == 0) {
    return "no launch: no token has an adapter";
  }
  DeviceFacts facts;
  facts.compute_capability = device.compute_capability;
  const Support support = tensor_cores_take(
      problem, facts,
      Semantics(Semantic::kScaledWeights, Semantic::kSharedX, Semantic::kRowFactors));
  return support.yes ? why_not_tuned(device, problem) : support.why_not;
}

}  // namespace

std::string reason_text(const AutoDevice& device, const Problem& problem) {
  switch (auto_reason(device, problem)) {
    case AutoReason::kFewRows:
      return rows_an_adapter("few", problem);
    case AutoReason::kClustersAsked:
    case AutoReason::kPanelAsked:
      return fmt::format("as tuning says: {}", tuning_text(problem.tuning));
    case AutoReason::kNoClusters:
      return fmt::format("compute capability {}.{} has no clusters of blocks",
                         device.compute_capability / 10, device.compute_capability % 10);
    case AutoReason::kNotLinear:
      return fmt::format("op {} is no linear op", name(problem.op));
    case AutoReason::kNoVectors:
      return problem.has_scaled_weights()
                 ? "rows of x, A or y that are no multiple of 16 bytes, or columns of B of 4"
                 : "rows of x or y that are no multiple of 16 bytes, or columns of B of 8";
    case AutoReason::kManyRows:
      return rows_an_adapter("many", problem);
    case AutoReason::kEightBits:
      return rows_an_adapter("many", problem) + "; " + eight_bits_of_panel();
    case AutoReason::kBlocksOfScales:
      return "scales of blocks; allowed: tensor, channel";
    case AutoReason::kNoPanel:
      return eight_bits_of_panel();
    case AutoReason::kNoRoom:
      break;
  }
  return fmt::format("{} of rank {} take more shared memory than a cluster's blocks have",
                     counted(problem.slices(), "slice"), problem.max_rank);
}

std::string why_not_tuned(const AutoDevice& device, const Problem& problem) {
  const std::optional<AutoFamily> asked = knobs_of(problem.tuning).family;
  if (problem.has_scaled_weights() && !takes_eight_bits(device, problem)) {
    return fmt::format("auto takes no such weights of eight bits: {}",
                       reason_text(device, problem));
  }
  if (problem.groups() == 0 || !asked) {
    return "";
  }
  if (asked == AutoFamily::kClustered) {
    return why_not_clustered(device, problem);
  }
  if (asked == AutoFamily::kResident) {
    return why_not_resident(device, problem);
  }
  if (std::string no_half = why_no_such_half(problem); !no_half.empty()) {
    return no_half;
  }
  const std::string shrink = why_not_shrink(device, problem);
  return shrink.empty() ? why_not_expand(device, problem) : shrink;
}

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
        problem.has_scaled_weights()
            ? "naive where an address does not begin on 16 bytes"
            : fmt::format("{} of workspace, for panel where an address does not begin on 16 bytes",
                          bytes(auto_workspace_bytes(device, problem, problem.tuning))));
    return lines;
  }
  const std::vector<std::string> launches = panel_lines(device, problem);
  lines.insert(lines.end(), launches.begin(), launches.end());
  return lines;
}

Tuning tuning_of_choice(const AutoDevice& device, const Problem& problem) {
  return why_no_launch(device, problem).empty() ? tuning_of(chosen_knobs(device, problem))
                                                : Tuning();
}

}  // namespace lora_bench
