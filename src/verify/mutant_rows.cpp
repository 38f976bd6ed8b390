#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/idle_rows.h"
#include "plan/forms.h"
#include "verify/mutant_faults.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kTileRows = 4;

struct Span {
  std::int64_t first = 0, last = 0;
};

// Entries of active_ids that a launch has to look at in whichever form the plan is handed over.
std::int64_t most_groups(const Problem& problem, const Operands& operands) {
  switch (problem.plan_form) {
    case PlanForm::kKernel:
      return problem.slots + 1;
    case PlanForm::kChunked:
      return most_segments(problem.tokens, problem.group_slots(), problem.chunk);
    case PlanForm::kSorted:
      break;
  }
  std::vector<bool> active(static_cast<std::size_t>(problem.slots));
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    if (operands.adapter_of_token[token] >= 0) {
      active[static_cast<std::size_t>(operands.adapter_of_token[token])] = true;
    }
  }
  return std::count(active.begin(), active.end(), true);
}

// A group of rows with an adapter.
struct Group {
  std::int64_t first = 0, last = 0;  // places in token_order
  std::int32_t adapter = 0;
};

std::int32_t adapter_of_group(const Problem& problem, std::int32_t id, Fault fault) {
  const bool idle = id >= problem.slots;
  return idle && fault == Fault::kIdleSegmentIsLastSlot
             ? static_cast<std::int32_t>(problem.slots - 1)
             : (idle ? kNoAdapter : id);
}

// Taken from what the operands hold now: the problem may be that of another batch, recorded.
std::vector<Group> groups_now(const Problem& problem, const Operands& operands, Fault fault) {
  std::vector<Group> groups;
  const std::int64_t most = most_groups(problem, operands);
  for (std::int64_t group = 0; group < most; ++group) {
    const std::int32_t adapter = adapter_of_group(problem, operands.active_ids[group], fault);
    if (adapter >= 0 && operands.group_starts[group] < operands.group_starts[group + 1]) {
      groups.push_back({operands.group_starts[group], operands.group_starts[group + 1], adapter});
    }
  }
  return groups;
}

bool has_base_rows(const Problem& problem, const Operands& operands) {
  return std::any_of(operands.adapter_of_token, operands.adapter_of_token + problem.tokens,
                     [](std::int32_t adapter) { return adapter < 0; });
}

Span groups_to_do(const Problem& problem, const Operands& operands, const std::vector<Group>& all,
                  Fault fault) {
  Span groups{0, static_cast<std::int64_t>(all.size())};
  if (fault == Fault::kNoOp || fault == Fault::kFrozenActiveCount) {
    groups.last = 0;
  }
  if (fault == Fault::kSegmentsBeyondCaptured) {
    groups.last = std::min<std::int64_t>(groups.last, 1);
  }
  if (fault == Fault::kGroupsOfRecording) {
    groups.last = std::min(groups.last, problem.plan.active());
  }
  if (fault == Fault::kSkipsFirstGroupAfterNone && groups.last > 0 &&
      has_base_rows(problem, operands)) {
    groups.first = 1;
  }
  if (fault == Fault::kLastSlotIsNone && groups.last > 0 &&
      all.back().adapter == problem.slots - 1) {
    --groups.last;
  }
  return groups;
}

Span rows_to_do(const Group& group, Fault fault) {
  constexpr std::int64_t kAssumedChunk = 16;
  Span rows{group.first, group.last};
  if (fault == Fault::kFirstRowLost) {
    ++rows.first;
  }
  if (fault == Fault::kLastRowLost) {
    --rows.last;
  }
  if (fault == Fault::kPartialTileLost) {
    rows.last -= (rows.last - rows.first) % kTileRows;
  }
  if (fault == Fault::kRowsBeyondOneTileLost) {
    rows.last = std::min(rows.last, rows.first + kAssumedChunk);
  }
  return rows;
}

// -1 where the fault loses the row.
std::int32_t adapter_of(const Operands& operands, const std::vector<Group>& groups,
                        std::int64_t group, std::int64_t position, Fault fault) {
  if (fault == Fault::kGroupIndexAsAdapter) {
    return static_cast<std::int32_t>(group);
  }
  if (fault == Fault::kUnsortedMetadata) {
    return operands.adapter_of_token[position];
  }
  if (fault == Fault::kOneRowWrongAdapter && position == groups.front().first) {
    return groups[static_cast<std::size_t>(group + 1) % groups.size()].adapter;
  }
  return groups[static_cast<std::size_t>(group)].adapter;
}

// Rows without adapter and rows of an adapter of rank 0 stay as they are, unless that adds a bias.
bool does_something(const Problem& problem, const Operands& operands, std::int32_t adapter,
                    Fault fault) {
  if (adapter < 0 || operands.rank[adapter] > 0) {
    return adapter >= 0;
  }
  return fault == Fault::kRankZeroReadsLaneZero ||
         (problem.acts(adapter, 0) && fault != Fault::kRankZeroBiasForgotten);
}

std::int64_t source_of(const Problem& problem, std::int64_t token, Fault fault) {
  constexpr std::int64_t kRowsBeforeOverflow = 16;
  if (fault == Fault::kRowOffsetWraps) {
    return token % kRowsBeforeOverflow;
  }
  if (fault == Fault::kNeighbourRow) {
    return (token + 1) % problem.tokens;
  }
  return token;
}

void add_base_rows(const Operands& operands, std::int64_t tokens, const std::vector<Group>& groups,
                   Fault fault, std::vector<RowTask>& tasks) {
  if (tasks.empty()) {
    return;
  }
  const RowTask last = tasks.back();
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (operands.adapter_of_token[token] >= 0) {
      continue;
    }
    if (fault == Fault::kNoneIsFirstAdapter) {
      tasks.push_back({token, token, groups.front().adapter});
    }
    if (fault == Fault::kStaleDeltaForBase) {
      tasks.push_back({token, last.source, last.adapter});
    }
  }
}

// Whether all that slices own of a row of y is.
bool row_is_nan(const Problem& problem, const Operands& operands, std::int64_t token) {
  const std::int64_t first = token * problem.y_stride + problem.offset_start;
  const std::int64_t columns =
      std::accumulate(problem.widths.begin(), problem.widths.end(), std::int64_t{0});
  const std::vector<float> y = decoded(problem.dtype[Role::kY], operands.y, first, columns);
  return std::all_of(y.begin(), y.end(), [](float value) { return std::isnan(value); });
}

}  // namespace

std::vector<RowTask> assign_rows(const Problem& problem, const Operands& operands, Fault fault) {
  std::vector<RowTask> tasks;
  const std::vector<Group> groups = groups_now(problem, operands, fault);
  const Span wanted = groups_to_do(problem, operands, groups, fault);
  for (std::int64_t group = wanted.first; group < wanted.last; ++group) {
    const Group& here = groups[static_cast<std::size_t>(group)];
    const Span rows = rows_to_do(here, fault);
    for (std::int64_t position = rows.first; position < rows.last; ++position) {
      const std::int64_t token = operands.token_order[position];
      const std::int32_t adapter =
          slot_of_expert(problem, adapter_of(operands, groups, group, position, fault), fault);
      if (does_something(problem, operands, adapter, fault) &&
          !loses_choice(problem, token, fault)) {
        tasks.push_back({token, source_of(problem, token, fault), adapter});
      }
    }
    const std::int64_t partial = (rows.last - rows.first) % kTileRows;
    if (fault == Fault::kPaddingReadsTokenZero && partial > 0) {
      tasks.push_back({0, 0, here.adapter});
    }
  }
  add_base_rows(operands, problem.tokens, groups, fault, tasks);
  return tasks;
}

void zero_rows_left_over(const Problem& problem, const Operands& operands, Fault fault) {
  if (fault == Fault::kIdleRowsKept || !problem.zeroes_idle_rows()) {
    return;
  }
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    if (fault == Fault::kIdleRowsKeptUnlessNan && !row_is_nan(problem, operands, token)) {
      continue;
    }
    if (fault != Fault::kRankZeroRowsKept || operands.adapter_of_token[token] < 0) {
      zero_idle_rows(problem, operands, token, token + 1);
    }
  }
}

std::vector<float> decoded(Dtype dtype, const void* array, std::int64_t first, std::int64_t count,
                           std::int64_t stride) {
  std::vector<float> values(static_cast<std::size_t>(count));
  if (stride == 1) {
    decode(dtype, static_cast<const std::byte*>(array) + first * size_bytes(dtype), values);
    return values;
  }
  for (std::int64_t index = 0; index < count; ++index) {
    values[static_cast<std::size_t>(index)] = load(dtype, array, first + index * stride);
  }
  return values;
}

bool is_of_layout(Fault fault) {
  return fault == Fault::kNone ||
         (fault >= Fault::kXColumnsTakenDense && fault <= Fault::kGapOfHWritten);
}

std::int64_t lanes_to_expand(const Problem& problem, Fault fault, std::int64_t rank) {
  if (fault == Fault::kRankLaneLost || fault == Fault::kLooseLaneLost) {
    return std::max<std::int64_t>(rank - 1, 0);
  }
  if (fault == Fault::kRank32Halved && rank == 32) {
    return 16;
  }
  return fault == Fault::kPaddingLanesRead && rank > 0 ? problem.max_rank : rank;
}

std::int64_t pitch_of_b(const Problem& problem, Fault fault) {
  if (fault != Fault::kPitchOfLargestRank || problem.rank.empty()) {
    return problem.b_pitch();
  }
  const std::int64_t largest = *std::max_element(problem.rank.begin(), problem.rank.end());
  return std::min(problem.max_rank, (largest + 7) / 8 * 8);
}

std::int64_t y_column(const Problem& problem, Fault fault, std::int64_t slice,
                      std::int64_t column) {
  const std::vector<std::int64_t>& widths = problem.widths;
  std::int64_t offset = fault == Fault::kOffsetStartIgnored ? 0 : problem.offset_start;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const bool earlier = static_cast<std::int64_t>(i) < slice;
    offset += earlier ? widths[i] : 0;
    offset += earlier && widths[i] == 0 && fault == Fault::kZeroWidthShifts ? 1 : 0;
    total += widths[i];
  }
  const std::int64_t slices = problem.slices();
  if (fault == Fault::kSlicesSplitEqually) {
    offset = problem.offset_start + slice * (total / slices);
  }
  const std::int64_t width = widths[static_cast<std::size_t>(slice)];
  return offset + (fault == Fault::kColumnShifted ? (column + 1) % width : column);
}

bool skips_column(const Problem& problem, Fault fault, std::int64_t slice, std::int64_t column) {
  const std::int64_t width = problem.widths[static_cast<std::size_t>(slice)];
  return (fault == Fault::kOddColumnsLost && column >= width - width % 16) ||
         (fault == Fault::kFirstColumnUnwritten && column == 0) ||
         (fault == Fault::kOverwriteSkipped && !problem.add_inputs);
}

std::int64_t y_pitch(const Problem& problem, Fault fault) {
  if (fault != Fault::kYStrideIgnored) {
    return problem.y_stride;
  }
  std::int64_t pitch = problem.offset_start;
  for (const std::int64_t width : problem.widths) {
    pitch += width;
  }
  return pitch;
}

std::int64_t slice_of_bias(const Problem& problem, Fault fault, std::int64_t slice) {
  if (problem.has_bias(slice)) {
    return slice;
  }
  for (std::int64_t other = 0; other < problem.slices() && fault == Fault::kBiasWhereNoneIs;
       ++other) {
    if (problem.has_bias(other) && problem.widths[static_cast<std::size_t>(other)] > 0) {
      return other;
    }
  }
  return -1;
}

std::int64_t weights_of(const Problem& problem, Fault fault, std::int64_t slice) {
  const std::vector<std::int64_t>& widths = problem.widths;
  for (std::size_t left = fault == Fault::kSlicesSwapped ? widths.size() : 1; left-- > 1;) {
    if (widths[left - 1] == widths[left] && widths[left] > 0) {
      const auto right = static_cast<std::int64_t>(left);
      return slice == right ? right - 1 : (slice == right - 1 ? right : slice);
    }
  }
  return slice;
}

}  // namespace lora_bench
