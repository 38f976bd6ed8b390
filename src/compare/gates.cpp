#include "compare/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "report/doubts.h"

namespace lora_bench {
namespace {

constexpr double kRounding = 1e-9;

std::vector<std::string> levels_of(const Row& row) {
  std::vector<std::string> levels(1);
  for (const char letter : row.proof.levels) {
    if (letter == '+' || letter == ',') {
      levels.emplace_back();
    } else {
      levels.back() += letter;
    }
  }
  return levels;
}

std::string looser_threshold(const Row& base, const Row& fresh) {
  constexpr double kOtherwise = CompareOptions{}.threshold;
  const bool neither = !base.limits.max_regression && !fresh.limits.max_regression;
  if (neither ||
      (fresh.limits.max_regression &&
       *fresh.limits.max_regression <= base.limits.max_regression.value_or(kOtherwise))) {
    return "";
  }
  const auto told = [](const std::optional<double>& share, const std::string& none) {
    return share ? fmt::format("{:g}", *share) : none;
  };
  return fmt::format("max_regression is {} in new, {} in base",
                     told(fresh.limits.max_regression, "none"),
                     told(base.limits.max_regression, fmt::format("none ({:g})", kOtherwise)));
}

std::string less_proof(const Row& base, const Row& fresh) {
  if (base.status != Status::kPassed || fresh.status != Status::kPassed) {
    return "";  // what did not pass was proved as far as it held
  }
  const std::vector<std::string> proved = levels_of(fresh);
  std::vector<std::string> missing;
  for (const std::string& level : levels_of(base)) {
    if (std::find(proved.begin(), proved.end(), level) == proved.end()) {
      missing.push_back(level);
    }
  }
  if (!missing.empty()) {
    return fmt::format("not proved in new: {}", fmt::join(missing, ", "));
  }
  const double checked = fresh.proof.rows_checked.value_or(0);
  return base.proof.rows_checked && checked < *base.proof.rows_checked - kRounding
             ? fmt::format("rows_checked is {:.3g} in new, {:.3g} in base", checked,
                           *base.proof.rows_checked)
             : "";
}

// Fewer sets of weights are less for the caches to hold.
std::string less_rotated(const Row& base, const Row& fresh) {
  const std::int64_t sets = fresh.time.rotation_sets.value_or(0);
  const bool timed = base.time.us && fresh.time.us && timed_alike(base, fresh);
  return timed && base.time.rotation_sets && sets < *base.time.rotation_sets
             ? fmt::format("rotation_sets are {} in new, {} in base", sets,
                           *base.time.rotation_sets)
             : "";
}

struct Looser {
  std::string first;
  std::int64_t rows = 0;
};

}  // namespace

void note_looser_gates(const Results& base, const Results& fresh,
                       std::vector<std::string>& warnings) {
  const std::string asked = asked_of_rows(base.context.argv);
  const std::string asked_now = asked_of_rows(fresh.context.argv);
  if (asked != asked_now) {
    warnings.push_back(
        fmt::format("what was asked of rows differs: base '{}', new '{}'; run both with the same "
                    "options to hold them to the same",
                    asked, asked_now));
  }
  std::map<std::tuple<std::string, std::string, std::string>, const Row*> known;
  for (const Row& row : base.rows) {
    known.emplace(std::make_tuple(row.id.scenario, row.id.case_id, row.id.backend), &row);
  }
  std::map<std::string, Looser> found;
  for (const Row& row : fresh.rows) {
    const auto before = known.find({row.id.scenario, row.id.case_id, row.id.backend});
    if (before == known.end()) {
      continue;
    }
    for (const std::string& sentence :
         {looser_threshold(*before->second, row), less_proof(*before->second, row),
          less_rotated(*before->second, row)}) {
      if (!sentence.empty()) {
        Looser& looser = found[sentence];
        looser.first = looser.rows++ == 0 ? row.id.case_id + " on " + row.id.backend : looser.first;
      }
    }
  }
  for (const auto& [sentence, looser] : found) {
    warnings.push_back(fmt::format("new was held to less than base: {} ({} row{}, the first: {})",
                                   sentence, looser.rows, looser.rows == 1 ? "" : "s",
                                   looser.first));
  }
}

}  // namespace lora_bench
