#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/named.h"
#include "core/status.h"
#include "report/row.h"
#include "report/sink.h"

namespace lora_bench {

enum class Change : std::uint8_t {
  kFaster,
  kSame,
  kSlower,
  kInconclusive,
  kMissing,      // in base, not in new
  kAdded,        // in new, not in base
  kBroken,       // lost its proof since base, or a wrong result in new
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

// All repeats of one row. A repeat is the unit that verdicts rest on: its samples were taken within
// a second, and say little about what the machine does in the next.
struct Repeats {
  Row row;  // the first, with medians over the repeats; or the one that is wrong
  std::vector<double> times_us;       // of each undisturbed repeat its median
  std::vector<double> yardsticks_us;  // of the same, where they have one
  std::int64_t disturbed = 0;         // repeats that are left out
  std::string disturbance;            // of the first of them
  std::string doubt;                  // why no verdict should rest on them; "" = nothing
};

// Verdict on two rows that PASSED and were timed, one of so many that are judged together: the
// chance of a false alarm is shared among them. The method is in docs/comparing.md.
[[nodiscard]] ComparedRow judge(const Repeats& base, const Repeats& fresh,
                                const CompareOptions& options, std::int64_t rows);

[[nodiscard]] std::string render_compare(const CompareReport& report, bool markdown,
                                         const TableStyle& style);

// Appends a sentence for each way in which NEW was held to less than BASE, or to another thing: the
// options of the command line, a larger max_regression, a level of proof or rows that were not
// looked at. A pass through a wider gate is no pass of the old one.
void note_looser_gates(const Results& base, const Results& fresh,
                       std::vector<std::string>& warnings);

// Rows of the same scenario, case, backend, cache and mode are repeats of one row. A repeat that
// did not pass stands for all, a wrong one before others; so does one without a time.
[[nodiscard]] std::vector<Repeats> group_repeats(const std::vector<Row>& rows);

// Precondition: not empty.
[[nodiscard]] double median_of(std::vector<double> values);

// Whether a status is exit code 2, or 4.
[[nodiscard]] bool is_wrong(Status status);
[[nodiscard]] bool is_doubtful(Status status);

// By how much the times of one group of repeats differ from those of another: the median of the
// logarithms of all ratios fresh / base (Hodges and Lehmann), and its interval by the rank-sum test
// of Mann and Whitney. No law of the times is assumed, only that repeats are independent.
struct Shift {
  double median = 0, low = 0, high = 0;
};

// How many of the ratios below the interval (and as many above) the test leaves out, plus one: the
// rank of its ends. The shift lies outside one of them with a chance of `level` at most; 0 = so few
// repeats cannot tell at this level.
[[nodiscard]] std::int64_t rank_of_end(std::int64_t base, std::int64_t fresh, double level);

// The least number of repeats, of either group as many, with which rank_of_end is not 0.
[[nodiscard]] std::int64_t least_repeats(double level);

// Precondition: times above 0, and rank_of_end of these sizes is not 0.
[[nodiscard]] Shift shift_of(std::span<const double> base, std::span<const double> fresh,
                             double level);

}  // namespace lora_bench
