#include "compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "compare/gates.h"
#include "core/error.h"
#include "core/units.h"
#include "report/doubts.h"
#include "report/screen.h"

namespace lora_bench {
namespace {

using Identity = std::tuple<std::string, std::string, std::string>;

Identity identity(const Row& row) { return {row.scenario, row.case_id, row.backend}; }

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

// One row for all repeats. Runs differ more than the samples of one run, so the spread of the
// repeats counts as noise. A repeat that did not pass stands for all, a wrong one before others;
// one whose figures contradict each other leaves the whole without a verdict.
struct Pooled {
  Row row;
  std::string doubt;
};

bool wrong(Status status) { return exit_code(status) == ExitCode::kWrongResult; }
bool doubtful(Status status) { return exit_code(status) == ExitCode::kInconclusive; }

std::string with_message(const Row& row, std::string reason) {
  return row.message.empty() ? reason : reason + ": " + row.message;
}

const Row* not_passed(const std::vector<const Row*>& repeats) {
  const Row* found = nullptr;
  for (const Row* row : repeats) {
    const bool first = found == nullptr && row->status != Status::kPassed;
    if (first || (wrong(row->status) && !wrong(found->status))) {
      found = row;
    }
  }
  return found;
}

void pool_base(Row& all, const std::vector<const Row*>& repeats) {
  std::vector<double> bases;
  for (const Row* row : repeats) {
    if (row->base_us) {
      bases.push_back(*row->base_us);
    }
  }
  if (!bases.empty()) {
    all.base_us = median_of(bases);
  }
}

// Known where it is in all of them.
void pool_tax(Row& all, const std::vector<const Row*>& repeats) {
  std::vector<double> taxes;
  double noise_us = 0;
  for (const Row* row : repeats) {
    if (!row->tax_us) {
      all.tax_us.reset();
      return;
    }
    taxes.push_back(*row->tax_us);
    noise_us = std::max(noise_us, row->tax_noise_us.value_or(0));
  }
  const auto [least, most] = std::minmax_element(taxes.begin(), taxes.end());
  all.tax_noise_us = std::max(noise_us, (*most - *least) / 2);
  all.tax_us = median_of(taxes);
}

Pooled pooled(const std::vector<const Row*>& repeats) {
  if (const Row* row = not_passed(repeats)) {
    return {*row, ""};
  }
  CasesByName cases;
  for (const Row* row : repeats) {
    if (std::string doubt = doubt_about_stored(*row); !doubt.empty()) {
      return {*row, std::move(doubt)};
    }
    const std::string repeat = fmt::format("repeat {}", row->repetition);
    if (const std::string other = cases.other(*row, repeat); !other.empty()) {
      return {*repeats.front(), fmt::format("{} is {}", repeat, other)};
    }
  }
  Row all = *repeats.front();
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  all.samples_us.clear();
  for (const Row* row : repeats) {
    all.samples_us.insert(all.samples_us.end(), row->samples_us.begin(), row->samples_us.end());
    all.noise_us = std::max(all.noise_us.value_or(0), row->noise_us.value_or(0));
    if (row->time_us) {
      least = std::min(least, *row->time_us);
      most = std::max(most, *row->time_us);
    }
  }
  if (most > least) {
    all.noise_us = std::max(all.noise_us.value_or(0), (most - least) / 2);
  }
  if (!all.samples_us.empty()) {
    all.time_us = median_of(all.samples_us);
  }
  pool_base(all, repeats);
  pool_tax(all, repeats);
  return {std::move(all), ""};
}

std::vector<Pooled> pool_repeats(const std::vector<Row>& rows) {
  std::map<Identity, std::vector<std::size_t>> index;
  std::vector<std::vector<const Row*>> groups;
  for (const Row& row : rows) {
    std::vector<std::size_t>& candidates = index[identity(row)];
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
  std::vector<Pooled> result;
  result.reserve(groups.size());
  for (const auto& group : groups) {
    result.push_back(pooled(group));
  }
  return result;
}

ComparedRow without_verdict(const Row& row, Change change, std::string reason) {
  ComparedRow result;
  result.scenario = row.scenario;
  result.case_id = row.case_id;
  result.backend = row.backend;
  result.change = change;
  result.reason = std::move(reason);
  return result;
}

ComparedRow added(const Row& fresh) {
  if (wrong(fresh.status)) {
    return without_verdict(fresh, Change::kBroken,
                           fmt::format("not in base, {} in new", name(fresh.status)));
  }
  if (doubtful(fresh.status)) {
    return without_verdict(
        fresh, Change::kInconclusive,
        with_message(fresh, fmt::format("not in base, {} in new", name(fresh.status))));
  }
  return without_verdict(fresh, Change::kAdded, "not in base");
}

constexpr std::string_view kTaxGrew = "its tax grew";

bool tax_grew(const Row& base, const Row& fresh, double threshold) {
  if (!base.tax_us || !fresh.tax_us) {
    return false;
  }
  const double noise = std::hypot(base.tax_noise_us.value_or(0), fresh.tax_noise_us.value_or(0));
  return *fresh.tax_us - *base.tax_us > std::max(noise, threshold * *base.tax_us);
}

// What moved the layer without adapters is no matter of kernels for adapters: a clock, say.
bool base_moved(const Row& base, const Row& fresh, const ComparedRow& verdict) {
  if (!base.base_us || !fresh.base_us) {
    return false;
  }
  const double limit = 1 + *verdict.threshold;
  return verdict.change == Change::kSlower   ? *fresh.base_us > *base.base_us * limit
         : verdict.change == Change::kFaster ? *fresh.base_us * limit < *base.base_us
                                             : false;
}

ComparedRow compare_rows(const Pooled& base_row, const Pooled& fresh_row,
                         const CompareOptions& options) {
  const Row& base = base_row.row;
  const Row& fresh = fresh_row.row;
  const bool base_passed = base.status == Status::kPassed;
  const bool fresh_passed = fresh.status == Status::kPassed;
  if (!fresh_passed && (base_passed || wrong(fresh.status))) {
    return without_verdict(fresh, Change::kBroken,
                           with_message(fresh, fmt::format("{} in base, {} in new",
                                                           name(base.status), name(fresh.status))));
  }
  if (doubtful(fresh.status)) {
    return without_verdict(fresh, Change::kInconclusive,
                           with_message(fresh, fmt::format("{} in base, {} in new",
                                                           name(base.status), name(fresh.status))));
  }
  if (std::string other = other_case(base, fresh); !other.empty()) {
    ComparedRow result = without_verdict(fresh, Change::kNotCompared, std::move(other));
    result.other_case = true;
    return result;
  }
  if (!base_passed) {
    return without_verdict(
        fresh, Change::kNotCompared,
        fmt::format("{} in base, {} in new", name(base.status), name(fresh.status)));
  }
  if (base.time_us && !fresh.time_us) {
    return without_verdict(fresh, Change::kMissing, "timed in base, not timed in new");
  }
  if (!base.time_us) {
    return without_verdict(fresh, Change::kNotCompared, "not timed in base");
  }
  if (!base_row.doubt.empty() || !fresh_row.doubt.empty()) {
    return without_verdict(
        fresh, Change::kInconclusive,
        base_row.doubt.empty() ? "new: " + fresh_row.doubt : "base: " + base_row.doubt);
  }
  ComparedRow result = judge(base, fresh, options);
  if (result.change == Change::kSame && tax_grew(base, fresh, *result.threshold)) {
    result.reason = fmt::format(
        "{} from {} to {} us, which is less than the threshold of "
        "the whole layer",
        kTaxGrew, format_figure(*base.tax_us), format_figure(*fresh.tax_us));
  } else if (base_moved(base, fresh, result)) {
    result.reason = fmt::format(
        "the layer without adapters moved too, from {} to {} us: another clock, or "
        "another base product",
        format_figure(*base.base_us), format_figure(*fresh.base_us));
  }
  return result;
}

std::vector<ComparedRow> match(const std::vector<Pooled>& base, const std::vector<Pooled>& fresh,
                               const CompareOptions& options) {
  std::multimap<Identity, const Pooled*> unmatched;
  for (const Pooled& row : fresh) {
    unmatched.emplace(identity(row.row), &row);
  }
  std::vector<ComparedRow> result;
  for (const Pooled& row : base) {
    const auto [first, last] = unmatched.equal_range(identity(row.row));
    const auto found = std::find_if(
        first, last, [&](const auto& entry) { return timed_alike(row.row, entry.second->row); });
    if (found == last) {
      result.push_back(without_verdict(row.row, Change::kMissing, "not in new"));
    } else {
      result.push_back(compare_rows(row, *found->second, options));
      unmatched.erase(found);
    }
  }
  for (const auto& [key, row] : unmatched) {
    result.push_back(added(row->row));
  }
  return result;
}

ExitCode exit_code(const ComparedRow& row) {
  switch (row.change) {
    case Change::kBroken:
      return ExitCode::kWrongResult;
    case Change::kSlower:
      return ExitCode::kRegression;
    case Change::kMissing:
    case Change::kInconclusive:
      return ExitCode::kInconclusive;
    case Change::kFaster:
    case Change::kSame:
    case Change::kAdded:
      return ExitCode::kPass;
    case Change::kNotCompared:
      return row.other_case ? ExitCode::kInconclusive : ExitCode::kPass;
  }
  throw std::logic_error("change outside the enumeration");
}

bool decided(const ComparedRow& row) {
  return row.change == Change::kFaster || row.change == Change::kSame ||
         row.change == Change::kSlower;
}

void refuse_threshold_below_noise(const std::vector<ComparedRow>& rows, double threshold) {
  double quietest = std::numeric_limits<double>::infinity();
  for (const ComparedRow& row : rows) {
    quietest = std::min(quietest, row.noise_share.value_or(quietest));
  }
  if (std::isfinite(quietest) && quietest > threshold) {
    throw UsageError(fmt::format(
        "threshold of {:.6g} % is below the noise of every row; the quietest can tell a change of "
        "{:.2f} %: raise the threshold or measure more samples",
        threshold * 100, std::ceil(quietest * 1e4) / 100));
  }
}

// Every run writes them: without them nothing tells whether both measured the same step alike.
void note_untold_cases(const Results& results, std::vector<std::string>& reasons) {
  for (const auto& [key, field] :
       {std::pair("content", &Row::content), {"cache", &Row::cache}, {"mode", &Row::mode}}) {
    const auto untold =
        std::find_if(results.rows.begin(), results.rows.end(),
                     [field = field](const Row& row) { return (row.*field).empty(); });
    if (untold != results.rows.end()) {
      reasons.push_back(fmt::format("{}: the row of {} on {} has no {}", results.file,
                                    untold->case_id, untold->backend, key));
    }
  }
}

void refuse_doubtful(const Results& base, const Results& fresh, std::vector<std::string> reasons) {
  for (const Results* file : {&base, &fresh}) {
    reasons.insert(reasons.end(), file->warnings.begin(), file->warnings.end());
    note_untold_cases(*file, reasons);
  }
  if (!reasons.empty()) {
    throw UsageError(fmt::format("{} and {} cannot be compared with --strict: {}", base.file,
                                 fresh.file, fmt::join(reasons, "; ")));
  }
}

// "base: 2 rows, the first: noisy [a cpu, b cpu]; new: 1 row: throttled [a cpu]"
std::string doubtful_rows(const Results& base, const Results& fresh) {
  std::string text;
  for (const auto& [which, rows] : {std::pair("base", &base.rows), std::pair("new", &fresh.rows)}) {
    if (const std::vector<std::string> counts = count_by_warning(*rows); !counts.empty()) {
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", which, fmt::join(counts, ", "));
    }
  }
  return text;
}

// Without a scenario's hash nothing tells whether both ran the same.
void note_missing_hashes(const Results& base, const Results& fresh,
                         std::vector<std::string>& warnings) {
  std::set<std::string> in_base;
  std::set<std::string> noted;
  for (const Row& row : base.rows) {
    in_base.insert(row.scenario);
  }
  for (const Row& row : fresh.rows) {
    if (in_base.count(row.scenario) == 0 || !noted.insert(row.scenario).second) {
      continue;
    }
    for (const Results* file : {&base, &fresh}) {
      if (file->context.scenario_hash.count(row.scenario) == 0) {
        warnings.push_back(
            fmt::format("scenario '{}' has no scenario_hash in {}", row.scenario, file->file));
      }
    }
  }
}

int severity(Change change) {
  constexpr std::array kWorstFirst{Change::kBroken,       Change::kSlower, Change::kMissing,
                                   Change::kInconclusive, Change::kFaster, Change::kAdded,
                                   Change::kNotCompared,  Change::kSame};
  return static_cast<int>(std::find(kWorstFirst.begin(), kWorstFirst.end(), change) -
                          kWorstFirst.begin());
}

}  // namespace

std::string_view name(Change change) {
  switch (change) {
    case Change::kFaster:
      return "FASTER";
    case Change::kSame:
      return "SAME";
    case Change::kSlower:
      return "SLOWER";
    case Change::kInconclusive:
      return "INCONCLUSIVE";
    case Change::kMissing:
      return "MISSING";
    case Change::kAdded:
      return "ADDED";
    case Change::kBroken:
      return "BROKEN";
    case Change::kNotCompared:
      return "NOT COMPARED";
  }
  throw std::logic_error("change outside the enumeration");
}

CompareReport compare(const Results& base, const Results& fresh, const CompareOptions& options) {
  CompareReport report;
  if (!(options.threshold >= 0) || !std::isfinite(options.threshold)) {
    throw UsageError(
        fmt::format("a threshold of {} % judges nothing; allowed: a number of 0 or more",
                    options.threshold * 100));
  }
  report.warnings = context_differences(base.context, fresh.context);
  note_missing_hashes(base, fresh, report.warnings);
  note_looser_gates(base, fresh, report.warnings);
  if (options.strict) {
    refuse_doubtful(base, fresh, report.warnings);
  }
  if (const std::string doubts = doubtful_rows(base, fresh); !doubts.empty()) {
    report.warnings.push_back("rows measured in doubt: " + doubts);
  }
  report.rows = match(pool_repeats(base.rows), pool_repeats(fresh.rows), options);
  if (options.threshold_given) {
    refuse_threshold_below_noise(report.rows, options.threshold);
  }
  std::int64_t grown = 0;
  for (const ComparedRow& row : report.rows) {
    report.exit = worse(report.exit, exit_code(row));
    grown += row.change == Change::kSame && row.reason.starts_with(kTaxGrew) ? 1 : 0;
  }
  if (grown > 0) {
    report.warnings.push_back(fmt::format(
        "what adapters add grew beyond the threshold and its noise in {} row{} that {} SAME", grown,
        grown == 1 ? "" : "s", grown == 1 ? "is" : "are"));
  }
  if (std::none_of(report.rows.begin(), report.rows.end(), decided)) {
    report.exit = worse(report.exit, ExitCode::kInconclusive);
    report.warnings.emplace_back("no row could be compared");
  }
  std::stable_sort(report.rows.begin(), report.rows.end(),
                   [](const ComparedRow& left, const ComparedRow& right) {
                     return severity(left.change) < severity(right.change);
                   });
  return report;
}

}  // namespace lora_bench
