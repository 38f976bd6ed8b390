#include "ops/auto_tuning.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "core/units.h"

namespace lora_bench {
namespace {

std::string of_memory(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string rows_an_adapter(const char* how_many, const Problem& problem) {
  return fmt::format("{} rows an adapter: {} over {}", how_many, counted(problem.tokens, "token"),
                     counted(problem.groups(), "adapter"));
}

std::optional<SettingFault> fault_of(const std::string& key, std::int64_t value,
                                     std::initializer_list<std::int64_t> allowed) {
  if (value == 0 || std::find(allowed.begin(), allowed.end(), value) != allowed.end()) {
    return std::nullopt;
  }
  return SettingFault{"tuning." + key, fmt::format("'tuning.{}' is {}", key, value),
                      fmt::format("{}; 0 leaves it to `auto`", fmt::join(allowed, ", "))};
}

template <typename Tiles>
std::optional<SettingFault> fault_of(const std::string& key, const std::string& name,
                                     const Tiles& tiles) {
  std::vector<std::string> names;
  for (const auto& tile : tiles) {
    names.push_back(tile_name(tile));
  }
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) {
    return std::nullopt;
  }
  return SettingFault{"tuning." + key, fmt::format("'tuning.{}' is '{}'", key, name),
                      fmt::format("{}", fmt::join(names, ", "))};
}

// A number that speaks of a family which is not asked for would be silently left out.
std::optional<SettingFault> fault_of_family(const Tuning& tuning) {
  const auto check = [&](TunedFamily family, const char* key, bool said) {
    return said && tuning.family != family
               ? std::optional<SettingFault>(
                     {std::string("tuning.") + key,
                      fmt::format("'tuning.{}' with tuning.family {}", key, name(tuning.family)),
                      fmt::format("tuning.family {}", name(family))})
               : std::nullopt;
  };
  for (const auto& fault : {check(TunedFamily::kClustered, "cluster", tuning.cluster > 0),
                            check(TunedFamily::kClustered, "groups", tuning.groups > 0),
                            check(TunedFamily::kClustered, "warps", tuning.warps > 0),
                            check(TunedFamily::kClustered, "slots", tuning.slots > 0),
                            check(TunedFamily::kClustered, "blocks", tuning.blocks > 0),
                            check(TunedFamily::kPanel, "shrink_tile", !tuning.shrink_tile.empty()),
                            check(TunedFamily::kPanel, "split", tuning.split > 0),
                            check(TunedFamily::kPanel, "parts", tuning.parts > 0),
                            check(TunedFamily::kPanel, "expand_tile", !tuning.expand_tile.empty()),
                            check(TunedFamily::kPanel, "chunks", tuning.chunks > 0)}) {
    if (fault) {
      return fault;
    }
  }
  return std::nullopt;
}

const kernels::PanelShrinkTile* shrink_tile_named(const std::string& name) {
  const auto& tiles = kernels::kPanelShrinkTiles;
  const auto* const found = std::find_if(tiles.begin(), tiles.end(),
                                         [&](const auto& tile) { return tile_name(tile) == name; });
  return found == tiles.end() ? nullptr : &*found;
}

bool is_joined(const Tuning& tuning) {
  const kernels::PanelShrinkTile* tile = shrink_tile_named(tuning.shrink_tile);
  return tile != nullptr && tile->joined;
}

// A block adds no chains of another one, but in a cluster, which adds all.
std::optional<SettingFault> fault_of_parts(const Tuning& tuning) {
  if (is_joined(tuning)) {
    return (tuning.split == 0 || tuning.split == kernels::kChains) && tuning.parts <= 1
               ? std::nullopt
               : std::optional<SettingFault>(
                     {"tuning.shrink_tile",
                      fmt::format(
                          "'tuning.shrink_tile' is {} with tuning.split {}, tuning.parts {}",
                          tuning.shrink_tile, tuning.split, tuning.parts),
                      "split 8 and 1 part, or 0 of each"});
  }
  const kernels::PanelShrinkTile* tile = shrink_tile_named(tuning.shrink_tile);
  const std::int32_t parts = kernels::panel_parts(kernels::kPanelGroupedLevels);
  if (tile != nullptr && tile->grouped) {
    return tuning.split <= parts && (tuning.parts == 0 || tuning.parts == parts)
               ? std::nullopt
               : std::optional<SettingFault>(
                     {"tuning.shrink_tile",
                      fmt::format(
                          "'tuning.shrink_tile' is {} with tuning.split {}, tuning.parts {}",
                          tuning.shrink_tile, tuning.split, tuning.parts),
                      fmt::format("split up to {0} and {0} parts, or 0 of each", parts)});
  }
  if (tuning.parts == 0 || tuning.parts >= tuning.split) {
    return std::nullopt;
  }
  return SettingFault{
      "tuning.parts",
      fmt::format("'tuning.parts' is {} with tuning.split {}", tuning.parts, tuning.split),
      "at least the split"};
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
      of_memory(tuning.shared_bytes), of_memory(device.shared_bytes),
      counted(kernels::kClusteredBarrierBytes / 8 - 1, "slot"));
}

std::string why_not_resident(const AutoDevice& device, const Problem& problem) {
  switch (auto_reason(device, problem)) {
    case AutoReason::kClustersAsked:
      return "";
    case AutoReason::kNoRoom:
      return fmt::format(
          "tuning.family resident: the weights of {} of rank {} are more than the shared memory of "
          "clusters that run at once; allowed: clustered, panel",
          counted(problem.groups(), "adapter"), problem.max_rank);
    default:
      return fmt::format("tuning.family resident: {}; allowed: panel",
                         reason_text(device, problem));
  }
}

// A half that the op has not launches nothing that a number could be of; who makes a half of a
// linear op leaves the other's numbers out (half_of).
std::string why_no_such_half(const Problem& problem) {
  if (tuning_of_op(problem.tuning, problem.op) == problem.tuning) {
    return "";
  }
  return has_shrink(problem.op)
             ? fmt::format(
                   "tuning {{{}}}: op {} launches no expand; allowed: shrink_tile, split, parts",
                   tuning_text(problem.tuning), name(problem.op))
             : fmt::format("tuning {{{}}}: op {} launches no shrink; allowed: expand_tile, chunks",
                           tuning_text(problem.tuning), name(problem.op));
}

std::string why_not_shrink(const AutoDevice& device, const Problem& problem) {
  const Tuning& tuning = problem.tuning;
  if (tuning.shrink_tile.empty() && tuning.split == 0 && tuning.parts == 0) {
    return "";
  }
  if (!shrinks_in_vectors(problem)) {
    return "tuning {" + tuning_text(tuning) +
           "}: rows of x or A are no multiple of 16 bytes; "
           "allowed: no tuning of shrink";
  }
  const auto chosen = auto_shrink_tuning(device, problem, tuning, true);
  if (chosen.blocks == 0) {
    return "";
  }
  if (is_joined(tuning) && device.compute_capability < 90) {
    return fmt::format(
        "tuning.shrink_tile {}: compute capability {}.{} has no clusters of blocks; allowed: tiles "
        "that are not joined",
        tuning.shrink_tile, device.compute_capability / 10, device.compute_capability % 10);
  }
  const kernels::PanelShrinkTile* asked = shrink_tile_named(tuning.shrink_tile);
  if (asked != nullptr && asked->grouped && !auto_panel_shape(device, problem, true).groups) {
    return fmt::format(
        "tuning.shrink_tile {}: needs compute capability 9.0, code for sm_90a, and an x below "
        "64 GiB; allowed: tiles that are not grouped",
        tuning.shrink_tile);
  }
  const bool plain = chosen.tile == kernels::kPanelPlain;
  const auto& tile = kernels::kPanelShrinkTiles[static_cast<std::size_t>(plain ? 0 : chosen.tile)];
  const bool as_said = !plain &&
                       (tuning.shrink_tile.empty() || tile_name(tile) == tuning.shrink_tile) &&
                       (tuning.split == 0 || chosen.split == tuning.split) &&
                       (tuning.parts == 0 || kernels::panel_parts(chosen.levels) == tuning.parts);
  return as_said ? ""
                 : fmt::format(
                       "tuning {{{}}}: shrink takes more shared memory than a block may "
                       "have; allowed: {}",
                       tuning_text(tuning), of_memory(device.shared_bytes));
}

std::string why_not_expand(const AutoDevice& device, const Problem& problem) {
  const Tuning& tuning = problem.tuning;
  if (tuning.expand_tile.empty() && tuning.chunks == 0) {
    return "";
  }
  const auto chosen = auto_expand_tuning(device, problem, tuning, expands_in_vectors(problem));
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
        tuning.expand_tile, problem.max_rank, of_memory(device.shared_bytes));
  }
  return tuning.chunks == 0 || chosen.chunks == tuning.chunks
             ? ""
             : fmt::format("tuning.chunks {}: allowed: 1 to {}, the column tiles", tuning.chunks,
                           chosen.column_tiles);
}

}  // namespace

std::optional<SettingFault> tuning_fault(const Tuning& tuning) {
  for (const auto& fault :
       {fault_of_family(tuning), fault_of("cluster", tuning.cluster, {1, 2, 3, 4, 5, 6, 7, 8, 16}),
        fault_of("groups", tuning.groups, {1, 2, 3, 4, 5, 6, 7, 8}),
        fault_of("warps", tuning.warps, {2, 3, 4, 6, 8, 12, 16}),
        fault_of("slots", tuning.slots, {1, 2, 3, 4}), fault_of("blocks", tuning.blocks, {1, 2}),
        fault_of("shrink_tile", tuning.shrink_tile, kernels::kPanelShrinkTiles),
        fault_of("split", tuning.split, {1, 2, 4, 8}),
        fault_of("parts", tuning.parts, {1, 2, 4, 8}), fault_of_parts(tuning),
        fault_of("expand_tile", tuning.expand_tile, kernels::kPanelExpandTiles)}) {
    if (fault) {
      return fault;
    }
  }
  return std::nullopt;
}

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
      return "rows of x or y that are no multiple of 16 bytes, or columns of B of 8";
    case AutoReason::kManyRows:
      return rows_an_adapter("many", problem);
    case AutoReason::kNoRoom:
      break;
  }
  return fmt::format("{} of rank {} take more shared memory than a cluster's blocks have",
                     counted(problem.slices(), "slice"), problem.max_rank);
}

std::string why_not_tuned(const AutoDevice& device, const Problem& problem) {
  if (problem.groups() == 0 || problem.tuning.family == TunedFamily::kAuto) {
    return "";
  }
  if (problem.tuning.family == TunedFamily::kClustered) {
    return why_not_clustered(device, problem);
  }
  if (problem.tuning.family == TunedFamily::kResident) {
    return why_not_resident(device, problem);
  }
  if (std::string no_half = why_no_such_half(problem); !no_half.empty()) {
    return no_half;
  }
  const std::string shrink = why_not_shrink(device, problem);
  return shrink.empty() ? why_not_expand(device, problem) : shrink;
}

}  // namespace lora_bench
