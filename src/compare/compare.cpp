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

#include "core/error.h"
#include "core/units.h"
#include "report/doubts.h"
#include "report/screen.h"

namespace lora_bench {
namespace {

using Identity = std::tuple<std::string, std::string, std::string>;

Identity identity(const Row& row) { return {row.id.scenario, row.id.case_id, row.id.backend}; }

std::string with_message(const Row& row, std::string reason) {
  return row.message.empty() ? reason : reason + ": " + row.message;
}

ComparedRow without_verdict(const Row& row, Change change, std::string reason) {
  ComparedRow result;
  result.scenario = row.id.scenario;
  result.case_id = row.id.case_id;
  result.backend = row.id.backend;
  result.change = change;
  result.reason = std::move(reason);
  return result;
}

ComparedRow added(const Row& fresh) {
  if (is_wrong(fresh.status)) {
    return without_verdict(fresh, Change::kBroken,
                           fmt::format("not in base, {} in new", name(fresh.status)));
  }
  if (is_doubtful(fresh.status)) {
    return without_verdict(
        fresh, Change::kInconclusive,
        with_message(fresh, fmt::format("not in base, {} in new", name(fresh.status))));
  }
  return without_verdict(fresh, Change::kAdded, "not in base");
}

constexpr std::string_view kTaxGrew = "its tax grew";

bool tax_grew(const Row& base, const Row& fresh, double threshold) {
  if (!base.tax.us || !fresh.tax.us) {
    return false;
  }
  const double noise = std::hypot(base.tax.noise_us.value_or(0), fresh.tax.noise_us.value_or(0));
  return *fresh.tax.us - *base.tax.us > std::max(noise, threshold * *base.tax.us);
}

// What moved the layer without adapters is no matter of kernels for adapters: a clock, say.
bool base_moved(const Row& base, const Row& fresh, const ComparedRow& verdict) {
  if (!base.tax.base_us || !fresh.tax.base_us) {
    return false;
  }
  const double limit = 1 + *verdict.threshold;
  return verdict.change == Change::kSlower   ? *fresh.tax.base_us > *base.tax.base_us * limit
         : verdict.change == Change::kFaster ? *fresh.tax.base_us * limit < *base.tax.base_us
                                             : false;
}

// What needs no judgement of times; nothing where both have times that can be held against each
// other.
std::optional<ComparedRow> settled(const Repeats& base_row, const Repeats& fresh_row) {
  const Row& base = base_row.row;
  const Row& fresh = fresh_row.row;
  const bool base_passed = base.status == Status::kPassed;
  const bool fresh_passed = fresh.status == Status::kPassed;
  // A time that is not to be believed says nothing of the result, which was right.
  const bool time_alone = fresh.status == Status::kInvalid;
  if (!fresh_passed && !time_alone && (base_passed || is_wrong(fresh.status))) {
    return without_verdict(fresh, Change::kBroken,
                           with_message(fresh, fmt::format("{} in base, {} in new",
                                                           name(base.status), name(fresh.status))));
  }
  if (is_doubtful(fresh.status)) {
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
  if (base.time.us && !fresh.time.us) {
    return without_verdict(fresh, Change::kMissing, "timed in base, not timed in new");
  }
  if (!base.time.us) {
    return without_verdict(fresh, Change::kNotCompared, "not timed in base");
  }
  if (!base_row.doubt.empty() || !fresh_row.doubt.empty()) {
    return without_verdict(
        fresh, Change::kInconclusive,
        base_row.doubt.empty() ? "new: " + fresh_row.doubt : "base: " + base_row.doubt);
  }
  return std::nullopt;
}

ComparedRow judged(const Repeats& base_row, const Repeats& fresh_row, const CompareOptions& options,
                   std::int64_t rows) {
  const Row& base = base_row.row;
  const Row& fresh = fresh_row.row;
  ComparedRow result = judge(base_row, fresh_row, options, rows);
  if (result.change == Change::kSame && tax_grew(base, fresh, *result.threshold)) {
    result.reason = fmt::format(
        "{} from {} to {} us, which is less than the threshold of "
        "the whole layer",
        kTaxGrew, format_figure(*base.tax.us), format_figure(*fresh.tax.us));
  } else if (base_moved(base, fresh, result)) {
    result.reason = fmt::format(
        "the layer without adapters moved too, from {} to {} us: another clock, or "
        "another base product",
        format_figure(*base.tax.base_us), format_figure(*fresh.tax.base_us));
  }
  return result;
}

std::vector<ComparedRow> match(const std::vector<Repeats>& base, const std::vector<Repeats>& fresh,
                               const CompareOptions& options) {
  std::multimap<Identity, const Repeats*> unmatched;
  for (const Repeats& row : fresh) {
    unmatched.emplace(identity(row.row), &row);
  }
  std::vector<ComparedRow> result;
  std::vector<std::pair<const Repeats*, const Repeats*>> timed;
  for (const Repeats& row : base) {
    const auto [first, last] = unmatched.equal_range(identity(row.row));
    const auto found = std::find_if(
        first, last, [&](const auto& entry) { return timed_alike(row.row, entry.second->row); });
    if (found == last) {
      result.push_back(without_verdict(row.row, Change::kMissing, "not in new"));
      continue;
    }
    if (std::optional<ComparedRow> verdict = settled(row, *found->second)) {
      result.push_back(std::move(*verdict));
    } else {
      timed.emplace_back(&row, found->second);
    }
    unmatched.erase(found);
  }
  for (const auto& [before, after] : timed) {
    result.push_back(judged(*before, *after, options, std::ssize(timed)));
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

void note_threshold_below_noise(const std::vector<ComparedRow>& rows, double threshold,
                                std::vector<std::string>& warnings) {
  double least = std::numeric_limits<double>::infinity();
  for (const ComparedRow& row : rows) {
    least = std::min(least, row.least_threshold.value_or(least));
  }
  if (std::isfinite(least) && std::none_of(rows.begin(), rows.end(), decided)) {
    warnings.push_back(
        fmt::format("threshold of {:.6g} % is below the noise of every row; the quietest can be "
                    "told from {:.6g} % on",
                    threshold * 100, least * 100));
  }
}

// Every run writes them: without them nothing tells whether both measured the same step alike.
void note_untold_cases(const Results& results, std::vector<std::string>& reasons) {
  for (const auto& [key, field] : {std::pair("content", &Row::Step::content),
                                   {"cache", &Row::Step::cache},
                                   {"mode", &Row::Step::mode}}) {
    const auto untold =
        std::find_if(results.rows.begin(), results.rows.end(),
                     [field = field](const Row& row) { return (row.step.*field).empty(); });
    if (untold != results.rows.end()) {
      reasons.push_back(fmt::format("{}: the row of {} on {} has no {}", results.file,
                                    untold->id.case_id, untold->id.backend, key));
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
    in_base.insert(row.id.scenario);
  }
  for (const Row& row : fresh.rows) {
    if (in_base.count(row.id.scenario) == 0 || !noted.insert(row.id.scenario).second) {
      continue;
    }
    for (const Results* file : {&base, &fresh}) {
      if (file->context.scenario_hash.count(row.id.scenario) == 0) {
        warnings.push_back(
            fmt::format("scenario '{}' has no scenario_hash in {}", row.id.scenario, file->file));
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
  report.rows = match(group_repeats(base.rows), group_repeats(fresh.rows), options);
  if (options.threshold_given) {
    note_threshold_below_noise(report.rows, options.threshold, report.warnings);
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
