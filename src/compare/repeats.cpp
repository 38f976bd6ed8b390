#include "compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "report/doubts.h"

namespace lora_bench {
namespace {

// One that did not pass, a wrong one before others; else one without a time. Null = none.
const Row* stands_for_all(const std::vector<const Row*>& repeats) {
  const Row* found = nullptr;
  for (const Row* row : repeats) {
    const bool first = found == nullptr && row->status != Status::kPassed;
    if (first || (is_wrong(row->status) && !is_wrong(found->status))) {
      found = row;
    }
  }
  const auto untimed =
      std::find_if(repeats.begin(), repeats.end(), [](const Row* row) { return !row->time.us; });
  return found == nullptr && untimed != repeats.end() ? *untimed : found;
}

void add_base(Row& all, const std::vector<const Row*>& repeats) {
  std::vector<double> bases;
  for (const Row* row : repeats) {
    if (row->tax.base_us) {
      bases.push_back(*row->tax.base_us);
    }
  }
  if (!bases.empty()) {
    all.tax.base_us = median_of(bases);
  }
}

// Known where it is in all of them.
void add_tax(Row& all, const std::vector<const Row*>& repeats) {
  std::vector<double> taxes;
  double noise_us = 0;
  for (const Row* row : repeats) {
    if (!row->tax.us) {
      all.tax.us.reset();
      return;
    }
    taxes.push_back(*row->tax.us);
    noise_us = std::max(noise_us, row->tax.noise_us.value_or(0));
  }
  const auto [least, most] = std::minmax_element(taxes.begin(), taxes.end());
  all.tax.noise_us = std::max(noise_us, (*most - *least) / 2);
  all.tax.us = median_of(taxes);
}

std::string doubt_about_repeats(const std::vector<const Row*>& repeats) {
  CasesByName cases;
  for (const Row* row : repeats) {
    if (std::string doubt = doubt_about_stored(*row); !doubt.empty()) {
      return doubt;
    }
    const std::string repeat = fmt::format("repeat {}", row->id.repetition);
    if (const std::string other = cases.other(*row, repeat); !other.empty()) {
      return fmt::format("{} is {}", repeat, other);
    }
  }
  return "";
}

Repeats repeats_of(const std::vector<const Row*>& rows) {
  Repeats all;
  if (const Row* row = stands_for_all(rows)) {
    all.row = *row;
    return all;
  }
  all.row = *rows.front();
  all.doubt = doubt_about_repeats(rows);
  if (!all.doubt.empty()) {
    return all;
  }
  std::vector<const Row*> undisturbed;
  for (const Row* row : rows) {
    if (std::string why = disturbance(*row); !why.empty()) {
      all.disturbance = all.disturbed++ == 0 ? why : all.disturbance;
      continue;
    }
    undisturbed.push_back(row);
    all.times_us.push_back(*row->time.us);
    if (row->conditions.yardstick_us.value_or(0) > 0) {
      all.yardsticks_us.push_back(*row->conditions.yardstick_us);
    }
  }
  if (!undisturbed.empty()) {
    all.row.time.us = median_of(all.times_us);
    add_base(all.row, undisturbed);
    add_tax(all.row, undisturbed);
  }
  return all;
}

}  // namespace

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

bool is_wrong(Status status) { return exit_code(status) == ExitCode::kWrongResult; }
bool is_doubtful(Status status) { return exit_code(status) == ExitCode::kInconclusive; }

std::vector<Repeats> group_repeats(const std::vector<Row>& rows) {
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<std::size_t>> index;
  std::vector<std::vector<const Row*>> groups;
  for (const Row& row : rows) {
    std::vector<std::size_t>& candidates = index[{row.id.scenario, row.id.case_id, row.id.backend}];
    const auto found = std::find_if(candidates.begin(), candidates.end(), [&](std::size_t i) {
      return timed_alike(*groups[i].front(), row);
    });
    if (found != candidates.end()) {
      groups[*found].push_back(&row);
    } else {
      candidates.push_back(groups.size());
      groups.push_back({&row});
    }
  }
  std::vector<Repeats> result;
  result.reserve(groups.size());
  for (const auto& group : groups) {
    result.push_back(repeats_of(group));
  }
  return result;
}

}  // namespace lora_bench
