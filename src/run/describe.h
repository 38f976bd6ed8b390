#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/layer_problem.h"
#include "measure/ceilings.h"
#include "measure/measure.h"
#include "report/row.h"
#include "run/run.h"
#include "scenario/case.h"
#include "verify/verify.h"
#include "workload/problem.h"

namespace lora_bench {

// What a case says of itself, before anything is drawn, and the columns that hold it.
[[nodiscard]] Row describe_spec(const Case& spec, const std::string& backend);
[[nodiscard]] std::vector<std::string_view> columns_of_spec(const Case& spec);

// Says what became of a row after its proof, or in place of one. A doubt (MISTRUSTED, INVALID)
// takes the place of PASSED alone; everything else takes the place of what was said before.
void judge(Row& row, Status status, std::string message);

// The parts of a row, each from what it is about.
[[nodiscard]] Row describe_case(const Case& spec, const CaseStep& step, const std::string& backend);
void add_verdict(Row& row, const Verdict& verdict);
void add_measurement(Row& row, const Measurement& measurement);
void add_touch_time(Row& row, const Measurement& touch);
void add_plan_time(Row& row, std::optional<double> plan_s);
// Fills floor_us, stream_us, ratios and rates; makes the row INVALID when its time is below the
// floor by more than its noise.
void add_floor(Row& row, const Problem& problem, const MeasureSettings& settings,
               const Ceilings& ceilings);
// The same of any floor.
void judge_floor(Row& row, const Floor& floor);
// INVALID where a part that was timed took less than it can.
void judge_part(Row& row, std::string_view what, double us, double noise_us, const Floor& floor);
// Fills threshold_missed, or threshold_undecided where the noise does not allow a verdict.
void add_thresholds(Row& row, const Thresholds& thresholds);

// The command that reruns exactly this row and judges it as this run does.
[[nodiscard]] std::string repro_command(const Case& spec, const std::string& backend,
                                        const RunRequest& request);

// "'a b'" when the shell would not take the word as it is.
[[nodiscard]] std::string shell_quoted(const std::string& word);

// Adds a sentence to row.warning.
void warn(Row& row, const std::string& sentence);

}  // namespace lora_bench
