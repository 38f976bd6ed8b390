#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compare/repeats.h"
#include "core/named.h"
#include "core/status.h"
#include "report/sink.h"

namespace lora_bench {

enum class Change : std::uint8_t {
  kFaster,
  kSame,
  kSlower,
  kInconclusive,
  kMissing,      // in base, not in new
  kAdded,        // in new, not in base
  kBroken,       // passed in base and did not in new, or a wrong result in new
  kNotCompared,  // no time on one side or both, and nothing broke; or another case of the same name
};
template <>
struct EnumNames<Change> {
  static constexpr std::array<std::string_view, 8> kNames{
      "FASTER", "SAME", "SLOWER", "INCONCLUSIVE", "MISSING", "ADDED", "BROKEN", "NOT COMPARED"};
};

struct CompareOptions {
  double threshold = 0.03;       // a change above this share is a verdict
  bool threshold_given = false;  // else a row's own max_regression comes first
  bool strict = false;           // refuse other GPU, driver, scenario instead of warning
};

struct ComparedRow {
  std::string scenario, case_id, backend;
  std::optional<double> base_us, new_us, ratio;
  // What stands between a change and a verdict, as a share, and the threshold that was applied.
  std::optional<double> noise_share, threshold;
  std::optional<double> least_threshold;  // of an inconclusive row: from this on it would be SAME
  Change change = Change::kInconclusive;
  std::string reason;       // one sentence
  bool other_case = false;  // why it was not compared, which is no pass
};

struct CompareReport {
  std::vector<ComparedRow> rows;      // the worst first
  std::vector<std::string> warnings;  // contexts that differ, nothing compared
  ExitCode exit = ExitCode::kPass;
};

// Rows are matched by scenario, case, backend, cache and mode. Throws UsageError when `strict` and
// the contexts differ.
[[nodiscard]] CompareReport compare(const Results& base, const Results& fresh,
                                    const CompareOptions& options);

// Verdict on two rows that PASSED and were timed, one of so many that are judged together: the
// chance of a false alarm is shared among them. The method is in docs/comparing.md.
[[nodiscard]] ComparedRow judge(const Repeats& base, const Repeats& fresh,
                                const CompareOptions& options, std::int64_t rows);

[[nodiscard]] std::string render_compare(const CompareReport& report, bool markdown,
                                         const TableStyle& style);

}  // namespace lora_bench
