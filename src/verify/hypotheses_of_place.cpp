#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "verify/diagnose.h"

namespace lora_bench {
namespace {

bool owned(const WrongRow& row) {
  return std::any_of(row.right.owned.begin(), row.right.owned.end(),
                     [](std::uint8_t flag) { return flag != 0; });
}

bool all_owned_elements(const Evidence& evidence, const std::vector<std::uint8_t> WrongRow::*flag) {
  for (const WrongRow& row : evidence.rows) {
    for (std::size_t column = 0; column < row.got.size(); ++column) {
      if (row.right.owned[column] != 0 && (row.*flag)[column] == 0) {
        return false;
      }
    }
    if (!owned(row)) {
      return false;
    }
  }
  return !evidence.rows.empty();
}

// Where each slice of the case starts in a row of y.
std::vector<std::int64_t> true_starts(const Problem& problem) {
  std::vector<std::int64_t> starts;
  std::int64_t start = problem.offset_start;
  for (const std::int64_t width : problem.widths) {
    starts.push_back(start);
    start += width;
  }
  return starts;
}

// Written, though in no row any slice owns them; of h, though the adapter of the row has none.
std::set<std::int64_t> columns_outside(const Evidence& evidence) {
  const std::vector<std::int64_t>& widths = evidence.problem.widths;
  const std::int64_t first = evidence.problem.offset_start;
  const std::int64_t past = std::accumulate(widths.begin(), widths.end(), first);
  std::set<std::int64_t> columns;
  for (const WrongRow& row : evidence.rows) {
    for (std::int64_t column = 0; column < static_cast<std::int64_t>(row.got.size()); ++column) {
      if (row.wrong[at(column)] != 0 && row.right.owned[at(column)] == 0 &&
          (!evidence.expand || column < first || column >= past)) {
        columns.insert(column);
      }
    }
  }
  return columns;
}

struct Placement {
  std::vector<std::int64_t> starts;
  std::int64_t turned = 0;  // columns turn around inside their slice
  std::string sentence;
};

std::vector<Placement> placements(const Problem& problem) {
  const std::vector<std::int64_t> right = true_starts(problem);
  std::vector<Placement> all;
  for (const std::int64_t by : {1, -1, 2, -2, 4, -4, 8, -8, 16, -16}) {
    all.push_back({right, by,
                   fmt::format("every column holds the value of column {:+d}, turned "
                               "around inside its slice",
                               -by)});
  }
  std::set<std::int64_t> distances{1, -1, 2, -2, 4, -4, 8, -8, 16, -16, -problem.offset_start};
  for (const std::int64_t by : distances) {
    std::vector<std::int64_t> starts = right;
    for (std::int64_t& start : starts) {
      start += by;
    }
    const bool to_zero = by == -problem.offset_start;
    all.push_back({starts, 0,
                   to_zero ? "the slices start at column 0 instead of offset_start"
                           : fmt::format("all columns stand {:+d} columns from their place", by)});
  }
  std::vector<std::int64_t> after_empty = right;
  std::vector<std::int64_t> equal = right;
  const std::int64_t total = right.back() + problem.widths.back() - problem.offset_start;
  for (std::size_t slice = 0; slice < right.size(); ++slice) {
    after_empty[slice] += std::count(
        problem.widths.begin(), problem.widths.begin() + static_cast<std::ptrdiff_t>(slice), 0);
    equal[slice] =
        problem.offset_start + static_cast<std::int64_t>(slice) * (total / problem.slices());
  }
  all.push_back({after_empty, 0, "a slice of width 0 moves the slices after it by one column"});
  all.push_back({equal, 0, "the slices start at equal distances, whatever their widths"});
  std::erase_if(all, [&](const Placement& placement) {
    return placement.turned == 0 && placement.starts == right;
  });
  return all;
}

// What the row holds if the right deltas went to these places.
Prediction placed(const Evidence& evidence, const WrongRow& row, const Placement& placement) {
  const std::vector<double> delta = delta_of(evidence, row);
  const std::vector<std::int64_t> starts = true_starts(evidence.problem);
  Prediction prediction{row.before, row.before, std::vector<std::uint8_t>(row.got.size(), 1)};
  std::vector<int> visits(row.got.size(), 0);
  for (std::size_t slice = 0; slice < starts.size(); ++slice) {
    const std::int64_t width = evidence.problem.widths[slice];
    for (std::int64_t column = 0; column < width; ++column) {
      const std::int64_t turned = ((column + placement.turned) % width + width) % width;
      const std::int64_t to = placement.starts[slice] + turned;
      if (to < 0 || to >= static_cast<std::int64_t>(row.got.size())) {
        continue;
      }
      const double value = delta[at(starts[slice] + column)];
      const double bound = row.right.bound[at(starts[slice] + column)];
      if (!evidence.adds) {
        prediction.least[at(to)] = prediction.most[at(to)] = 0;
      } else if (visits[at(to)]++ > 0) {
        // A place that two slices share was stored, and so rounded, in between.
        prediction.least[at(to)] = reference::round_to(evidence.number, prediction.least[at(to)]);
        prediction.most[at(to)] = reference::round_to(evidence.number, prediction.most[at(to)]);
      }
      prediction.least[at(to)] += value - bound;
      prediction.most[at(to)] += value + bound;
    }
  }
  return prediction;
}

bool holds(const Evidence& evidence, const Placement& placement) {
  return std::all_of(evidence.rows.begin(), evidence.rows.end(), [&](const WrongRow& row) {
    return owned(row) && agrees(evidence, row, placed(evidence, row, placement)) == Agreement::kYes;
  });
}

}  // namespace

std::string rows_named(const Evidence& evidence) {
  std::vector<std::int64_t> tokens;
  for (const WrongRow& row : evidence.rows) {
    tokens.push_back(row.token);
  }
  return fmt::format("{} {}", tokens.size() == 1 ? "row" : "rows", fmt::join(tokens, ", "));
}

std::string rows_that(const Evidence& evidence, const std::string& verb) {
  const std::string singular = verb == "have" ? "has" : verb + "s";
  return rows_named(evidence) + " " + (evidence.rows.size() == 1 ? singular : verb);
}

std::string test_zero_delta(const Evidence& evidence) {
  if (!evidence.adds || !all_owned_elements(evidence, &WrongRow::untouched)) {
    return "";
  }
  return rows_that(evidence, "hold") + " what was there before: nothing was added";
}

std::string test_stale_output(const Evidence& evidence) {
  if (evidence.adds || !all_owned_elements(evidence, &WrongRow::untouched)) {
    return "";
  }
  return rows_that(evidence, "hold") + " what was there before the launch: never written";
}

std::string test_lost_columns(const Evidence& evidence) {
  std::set<std::pair<std::int64_t, std::int64_t>> places;  // slice and column, ascending
  for (const WrongRow& row : evidence.rows) {
    for (std::size_t column = 0; column < row.got.size(); ++column) {
      if (row.wrong[column] == 0) {
        continue;
      }
      if (row.right.owned[column] == 0 || row.untouched[column] == 0) {
        return "";
      }
      const Place place = place_of(evidence.problem, static_cast<std::int64_t>(column));
      places.insert({place.slice, place.column});
    }
  }
  if (places.empty()) {
    return "";
  }
  constexpr std::size_t kNamed = 6;
  const bool more = places.size() > kNamed;
  std::vector<std::string> names;
  for (const auto& [slice, column] : places) {
    if (names.size() < kNamed) {
      names.push_back(fmt::format("{} of slice {}", column, slice));
    }
  }
  return fmt::format("{} {}{} still hold what was there before, the others are right",
                     evidence.expand ? "columns" : "lanes", fmt::join(names, ", "),
                     more ? " and others" : "");
}

std::string test_column_shift(const Evidence& evidence) {
  if (!evidence.expand || evidence.problem.widths.empty()) {
    return "";
  }
  for (const Placement& placement : placements(evidence.problem)) {
    if (holds(evidence, placement)) {
      return placement.sentence;
    }
  }
  return "";
}

std::string test_slices_swapped(const Evidence& evidence) {
  const std::vector<std::int64_t>& widths = evidence.problem.widths;
  for (std::size_t left = 0; left < widths.size(); ++left) {
    for (std::size_t right = left + 1; right < widths.size(); ++right) {
      if (widths[left] != widths[right] || widths[left] == 0) {
        continue;
      }
      for (const bool with_bias : {false, true}) {
        const auto swap = [&](RowModel& model) { model.swap_slices(left, right, with_bias); };
        if (explains(evidence, swap)) {
          return fmt::format("slices {} and {} have changed places", left, right);
        }
      }
    }
  }
  return "";
}

std::string test_base_rows_written(const Evidence& evidence) {
  if ((!evidence.expand && !evidence.adds) ||
      std::any_of(evidence.rows.begin(), evidence.rows.end(), owned)) {
    return "";
  }
  return rows_that(evidence, "have") + " no adapter (or one of rank 0) and must stay as before";
}

std::string test_base_rows_written_too(const Evidence& evidence) {
  const auto written = [](const WrongRow& row) {
    return !owned(row) && std::find(row.wrong.begin(), row.wrong.end(), 1) != row.wrong.end();
  };
  const auto found = std::find_if(evidence.rows.begin(), evidence.rows.end(), written);
  if (!evidence.expand || found == evidence.rows.end() || !columns_outside(evidence).empty()) {
    return "";
  }
  return fmt::format(
      "row {} has no adapter (or one of rank 0) and must stay as before; rows with one are wrong "
      "as well",
      found->token);
}

std::string test_written_outside(const Evidence& evidence) {
  std::set<std::int64_t> columns = columns_outside(evidence);
  if (columns.empty()) {
    return "";
  }
  constexpr std::size_t kNamed = 6;
  const bool more = columns.size() > kNamed;
  while (columns.size() > kNamed) {
    columns.erase(std::prev(columns.end()));
  }
  return fmt::format("written in {}: {}{}",
                     evidence.expand ? "columns of y that no slice owns"
                                     : "lanes of a given h that the row's adapter has not",
                     fmt::join(columns, ", "), more ? " and others" : "");
}

std::string test_unused_memory_read(const Evidence& evidence) {
  std::int64_t wrong = 0;
  for (const WrongRow& row : evidence.rows) {
    for (std::size_t column = 0; column < row.got.size(); ++column) {
      if (row.wrong[column] != 0 && !std::isnan(row.got[column])) {
        return "";
      }
      wrong += row.wrong[column];
    }
  }
  if (wrong == 0) {
    return "";
  }
  const std::string lead = layout_misread_in_nan(evidence);
  return rows_that(evidence, "hold") +
         fmt::format(
             " NaN: rank padding, an unused slot{} or a buffer that was not written yet "
             "(as y that is to be overwritten) was read{}",
             evidence.problem.layout.plain() ? "" : ", a gap between elements",
             lead.empty() ? "" : "; it would be so if " + lead);
}

}  // namespace lora_bench
