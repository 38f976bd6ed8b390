#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/run.h"
#include "scenario/scenario.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace lora_bench {

// The options that say which cases: shared by run, verify, plan and export.
struct Selection {
  std::vector<std::string> files;
  std::vector<std::string> overrides;
  std::vector<std::string> filters;
  std::vector<std::string> cases;
  std::vector<std::string> backends;
  std::string tuning;       // file of `tune`, "" = none
  bool takes_tuned = true;  // cases that say what auto shall launch
  bool timed = true;        // false: nothing is, so that what is proved alone may be asked
  std::optional<std::uint64_t> seed;
  std::int64_t max_cases = LoadOptions{}.max_cases;
};

// An integer from 0 to the largest of 64 bits.
[[nodiscard]] CLI::Validator seed_validator();

void add_selection(CLI::App& command, Selection& selection, bool files_required);

constexpr const char* kRanksRows =
    "rows of a case in the order of this column, the quickest first and marked";
// --rank-by, with what it does for this command.
void add_rank_by(CLI::App& command, std::string& rank_by, const std::string& what);

[[nodiscard]] bool names_scenario(const std::string& text);

// Loads every file; the errors of all files in one UsageError, but for those of cases alone that
// plan_rows() refuses where they are chosen.
[[nodiscard]] std::vector<Scenario> load_selected(const Selection& selection);

// A request with everything the selection says.
[[nodiscard]] RunRequest request_for(const Selection& selection);

// What --tuning does not do for the planned rows: lines for stderr, or "".
[[nodiscard]] std::string notes_on_tuning(const RunRequest& request,
                                          const std::vector<PlannedRow>& planned);
void print_notes_on_tuning(const RunRequest& request, const std::vector<PlannedRow>& planned);

}  // namespace lora_bench
