#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "device/facts.h"
#include "kernels/clustered/clustered_tuning.h"
#include "kernels/clustered/resident_tuning.h"
#include "kernels/panel/panel_tuning.h"
#include "workload/problem.h"

namespace lora_bench {

// What the choice of kernels knows of a device; of itself it is an H200.
struct AutoDevice {
  int compute_capability = 90;
  std::int64_t multiprocessors = 132;
  std::int64_t shared_bytes = 227 << 10;          // that a block may have
  std::int64_t multiprocessor_bytes = 228 << 10;  // shared memory of each
  bool groups = true;                             // code for sm_90a is there, if it is an sm_90
};

// The kernel families of backend `auto`. All keep one order of sums, so that what is chosen changes
// no bit of a row.
enum class AutoFamily : std::uint8_t {
  kClustered,  // one launch, a cluster of blocks an adapter: the linear op of few rows on sm_90
  kResident,   // one launch of clusters that have all weights before it begins: few adapters
  kPanel,      // many rows of an adapter, and any other op, alignment and device
};
template <>
struct EnumNames<AutoFamily> {
  static constexpr std::array<std::string_view, 3> kNames{"clustered", "resident", "panel"};
};

// What a tuning says, or a launch was chosen to be: the knobs of the table in auto_tuning.cpp,
// which says what each means. None, 0 and "" say nothing.
struct AutoKnobs {
  std::optional<AutoFamily> family = {};
  std::int64_t cluster = 0, groups = 0, warps = 0, slots = 0, blocks = 0;
  std::string shrink_tile = {}, expand_tile = {};
  std::int64_t split = 0, parts = 0, chunks = 0;
};
[[nodiscard]] AutoKnobs knobs_of(const Tuning& tuning);
[[nodiscard]] Tuning tuning_of(const AutoKnobs& knobs);
// Without what is said of a half that the op has not.
[[nodiscard]] Tuning tuning_of_op(const Tuning& tuning, Op op);

// What decides. Those that is_for_clusters names lead to clusters, all others to kPanel. Weights of
// eight bits are taken where takes_eight_bits says so.
enum class AutoReason : std::uint8_t {
  kFewRows,
  kEightBits,  // many rows of what panel does not take
  kClustersAsked,
  kPanelAsked,
  kNoClusters,
  kNotLinear,
  kNoVectors,
  kManyRows,
  kNoRoom,
  kBlocksOfScales,
  kNoPanel,  // asked, for weights of eight bits that it does not take
};
[[nodiscard]] bool is_for_clusters(AutoReason reason);

// From the device, sizes, limits, problem.tuning and, where the launch is for this batch alone, how
// many tiles its groups of rows make; never from who uses which adapter.
// Addresses that do not start on 16 bytes are seen later, and go to kPanel.
[[nodiscard]] AutoReason auto_reason(const AutoDevice& device, const Problem& problem);
// Whether panel takes weights of eight bits whose sizes clusters could copy: columns of B are
// copied eight lanes at a time, and wider ranks and an h of 16 bits have no kernel.
[[nodiscard]] bool panel_takes_eight_bits(const Problem& problem);
// Whether a family does; of one that is asked for and has no room, the family tells.
[[nodiscard]] bool takes_eight_bits(const AutoDevice& device, const Problem& problem);
[[nodiscard]] AutoFamily auto_family(const AutoDevice& device, const Problem& problem);
// All that is launched, as a tuning could say it. A half of panel without a tile has no number that
// could be said, and is the same without.
[[nodiscard]] AutoKnobs chosen_knobs(const AutoDevice& device, const Problem& problem);

[[nodiscard]] kernels::ClusteredShape auto_clustered_shape(const AutoDevice& device,
                                                           const Problem& problem);
// How many numbers of bf16 an element of h is where expand multiplies by products of four warps
// together; else 0.
[[nodiscard]] int expand_numbers(const AutoDevice& device, const Problem& problem);
// `vectors`: operands can be read 16 bytes at a time.
[[nodiscard]] kernels::PanelShape auto_panel_shape(const AutoDevice& device, const Problem& problem,
                                                   bool vectors);

// What each family is launched with: as it chooses by itself but for what the tuning says. A tile
// that is not taken (why_not_tuned) is as if nothing were said of it.
[[nodiscard]] kernels::ClusteredTuning auto_clustered_tuning(const AutoDevice& device,
                                                             const Problem& problem);
// Not `fits` where kClustered is the better one, and where the tuning asks for another family.
[[nodiscard]] kernels::ResidentTuning auto_resident_tuning(const AutoDevice& device,
                                                           const Problem& problem);
[[nodiscard]] kernels::PanelShrinkTuning auto_shrink_tuning(const AutoDevice& device,
                                                            const Problem& problem,
                                                            const Tuning& tuning, bool vectors);
[[nodiscard]] kernels::PanelExpandTuning auto_expand_tuning(const AutoDevice& device,
                                                            const Problem& problem,
                                                            const Tuning& tuning, bool vectors);

// Of panel, held for clusters too, as whether an address begins on 16 bytes is known only with it.
// Beside weights of eight bits such an address goes to naive, so clusters hold none.
[[nodiscard]] std::int64_t auto_workspace_bytes(const AutoDevice& device, const Problem& problem,
                                                const Tuning& tuning);

// Whether the sizes let each half of panel read 16 bytes at a time, were addresses to.
[[nodiscard]] bool shrinks_in_vectors(const Problem& problem);
[[nodiscard]] bool expands_in_vectors(const Problem& problem);

// As scenarios name tiles: "64x48", "64x128x16".
[[nodiscard]] std::string tile_name(const kernels::PanelShrinkTile& tile);
[[nodiscard]] std::string tile_name(const kernels::PanelExpandTile& tile);
// Null for what is no tile.
[[nodiscard]] const kernels::PanelShrinkTile* shrink_tile_named(const std::string& name);

// The GPU in use, whose facts are given. Throws EnvironmentError in a build without CUDA.
[[nodiscard]] AutoDevice auto_device(const DeviceFacts& facts);

}  // namespace lora_bench
