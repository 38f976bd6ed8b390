#include "ops/cpu_products.h"

#include <algorithm>

namespace lora_bench {
namespace {

constexpr std::int64_t kItemsPerThread = 4;  // so that a slow thread does not hold up the others
constexpr std::int64_t kShrinkRows = 96;     // rows that share one decoding of A
constexpr std::int64_t kShrinkLanes = 64;    // lanes that share one decoding of x
constexpr std::int64_t kExpandRows = 192;    // rows that share one panel of B
constexpr std::int64_t kPanelNumbers = std::int64_t{1} << 16;  // 256 KiB: stays in a core's cache

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

std::int64_t round_up(std::int64_t value, std::int64_t to) { return divide_up(value, to) * to; }

struct Group {
  std::int32_t slot = 0;
  std::int64_t first = 0, rows = 0, rank = 0;
};

// Of the plan as the launch is given it, in whichever form: several groups may be of one slot, and
// some of none.
std::vector<Group> acting_groups(const Problem& problem, const Operands& operands) {
  std::vector<Group> groups;
  for (std::int64_t g = 0; g < problem.groups(); ++g) {
    const std::int32_t slot = operands.active_ids[g];
    const std::int64_t first = operands.group_starts[g];
    const std::int64_t rows = operands.group_starts[g + 1] - first;
    if (slot >= 0 && rows > 0 && problem.acts(slot, operands.rank[slot])) {
      groups.push_back({slot, first, rows, operands.rank[slot]});
    }
  }
  return groups;
}

}  // namespace

CpuSlices cpu_slices(const Problem& problem) {
  CpuSlices slices;
  std::int64_t start = problem.offset_start;
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    const std::int64_t width = problem.widths[static_cast<std::size_t>(slice)];
    slices.column_start.push_back(start);
    if (width > 0) {
      slices.live.push_back(slice);
    }
    start += width;
  }
  return slices;
}

std::vector<CpuItem> shrink_items(const CpuLaunch& launch, int threads) {
  const CpuKernels& kernels = launch.kernels;
  std::vector<Group> groups = acting_groups(launch.problem, launch.operands);
  std::erase_if(groups, [](const Group& group) { return group.rank == 0; });
  const auto live = static_cast<std::int64_t>(launch.slices.live.size());
  std::int64_t lanes_in_all = 0;
  for (const Group& group : groups) {
    lanes_in_all += divide_up(group.rows, kShrinkRows) * live * group.rank;
  }
  const std::int64_t fair = divide_up(lanes_in_all, kItemsPerThread * threads);
  std::vector<CpuItem> items;
  for (const Group& group : groups) {
    // Many rows make decoding x dear, which every item does for itself.
    const std::int64_t least = group.rows > 8 ? 4 * kernels.tile_lanes : kernels.tile_lanes;
    const std::int64_t lanes_per_item =
        round_up(std::clamp(fair, least, std::max(least, kShrinkLanes)), kernels.tile_lanes);
    // Lanes of slices that each have an x of their own share none.
    const std::int64_t runs = launch.problem.own_inputs() ? std::max<std::int64_t>(live, 1) : 1;
    const std::int64_t lanes = live / runs * group.rank;
    for (std::int64_t row = 0; row < group.rows; row += kShrinkRows) {
      for (std::int64_t run = 0; run < runs; ++run) {
        for (std::int64_t lane = 0; lane < lanes; lane += lanes_per_item) {
          items.push_back({group.slot, group.first + row, std::min(kShrinkRows, group.rows - row),
                           0, run * lanes + lane, std::min(lanes_per_item, lanes - lane)});
        }
      }
    }
  }
  return items;
}

std::vector<CpuItem> expand_items(const CpuLaunch& launch, int threads) {
  const Problem& problem = launch.problem;
  const CpuKernels& kernels = launch.kernels;
  const std::vector<Group> groups = acting_groups(problem, launch.operands);
  std::int64_t columns_in_all = 0;
  for (const Group& group : groups) {
    for (const std::int64_t width : problem.widths) {
      columns_in_all += divide_up(group.rows, kExpandRows) * width;
    }
  }
  const std::int64_t fair = divide_up(columns_in_all, kItemsPerThread * threads);
  std::vector<CpuItem> items;
  for (const Group& group : groups) {
    const std::int64_t most =
        std::max(kernels.tile_columns, kPanelNumbers / std::max<std::int64_t>(group.rank, 1));
    const std::int64_t columns_per_item =
        round_up(std::clamp(fair, kernels.tile_columns, most), kernels.tile_columns);
    for (std::int64_t row = 0; row < group.rows; row += kExpandRows) {
      const std::int64_t rows = std::min(kExpandRows, group.rows - row);
      for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
        const std::int64_t width = problem.widths[static_cast<std::size_t>(slice)];
        for (std::int64_t column = 0; column < width; column += columns_per_item) {
          items.push_back({group.slot, group.first + row, rows, slice, column,
                           std::min(columns_per_item, width - column)});
        }
      }
    }
  }
  return items;
}

}  // namespace lora_bench
