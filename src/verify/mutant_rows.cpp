#include <algorithm>
#include <utility>

#include "verify/mutant_faults.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kTileRows = 4;

struct Span {
  std::int64_t first = 0, last = 0;
};

// Counted from what the operands hold now: the problem may be that of another batch, recorded.
std::int64_t active_now(const Problem& problem, const Operands& operands) {
  std::vector<bool> active(static_cast<std::size_t>(problem.slots));
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    if (operands.adapter_of_token[token] >= 0) {
      active[static_cast<std::size_t>(operands.adapter_of_token[token])] = true;
    }
  }
  return std::count(active.begin(), active.end(), true);
}

Span groups_to_do(const Problem& problem, const Operands& operands, std::int64_t active,
                  Fault fault) {
  Span groups{0, active};
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
      operands.group_starts[groups.last] < problem.tokens) {
    groups.first = 1;
  }
  if (fault == Fault::kLastSlotIsNone && groups.last > 0 &&
      operands.active_ids[groups.last - 1] == problem.slots - 1) {
    --groups.last;
  }
  return groups;
}

Span rows_to_do(const Operands& operands, std::int64_t group, Fault fault) {
  Span rows{operands.group_starts[group], operands.group_starts[group + 1]};
  if (fault == Fault::kFirstRowLost) {
    ++rows.first;
  }
  if (fault == Fault::kLastRowLost) {
    --rows.last;
  }
  if (fault == Fault::kPartialTileLost) {
    rows.last -= (rows.last - rows.first) % kTileRows;
  }
  return rows;
}

// -1 where the fault loses the row.
std::int32_t adapter_of(const Operands& operands, std::int64_t active, std::int64_t group,
                        std::int64_t position, Fault fault) {
  if (fault == Fault::kGroupIndexAsAdapter) {
    return static_cast<std::int32_t>(group);
  }
  if (fault == Fault::kUnsortedMetadata) {
    return operands.adapter_of_token[position];
  }
  if (fault == Fault::kOneRowWrongAdapter && position == 0) {
    return operands.active_ids[(group + 1) % active];
  }
  return operands.active_ids[group];
}

// Rows without adapter and rows of an adapter of rank 0 stay as they are, bias or not.
bool does_something(const Operands& operands, std::int32_t adapter, Fault fault) {
  return adapter >= 0 && (operands.rank[adapter] > 0 || fault == Fault::kRankZeroReadsLaneZero);
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

void add_base_rows(const Operands& operands, std::int64_t tokens, Fault fault,
                   std::vector<RowTask>& tasks) {
  if (tasks.empty()) {
    return;
  }
  const RowTask last = tasks.back();
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (operands.adapter_of_token[token] >= 0) {
      continue;
    }
    if (fault == Fault::kNoneIsFirstAdapter) {
      tasks.push_back({token, token, operands.active_ids[0]});
    }
    if (fault == Fault::kStaleDeltaForBase) {
      tasks.push_back({token, last.source, last.adapter});
    }
  }
}

}  // namespace

std::vector<RowTask> assign_rows(const Problem& problem, const Operands& operands, Fault fault) {
  std::vector<RowTask> tasks;
  const std::int64_t active = active_now(problem, operands);
  const Span groups = groups_to_do(problem, operands, active, fault);
  for (std::int64_t group = groups.first; group < groups.last; ++group) {
    const Span rows = rows_to_do(operands, group, fault);
    for (std::int64_t position = rows.first; position < rows.last; ++position) {
      const std::int64_t token = operands.token_order[position];
      const std::int32_t adapter = adapter_of(operands, active, group, position, fault);
      if (does_something(operands, adapter, fault)) {
        tasks.push_back({token, source_of(problem, token, fault), adapter});
      }
    }
    const std::int64_t partial = (rows.last - rows.first) % kTileRows;
    if (fault == Fault::kPaddingReadsTokenZero && partial > 0) {
      tasks.push_back({0, 0, operands.active_ids[group]});
    }
  }
  add_base_rows(operands, problem.tokens, fault, tasks);
  return tasks;
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
