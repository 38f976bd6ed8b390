#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "report/sink.h"
#include "run/target.h"
#include "scenario/case.h"
#include "scenario/scenario.h"

namespace lora_bench {

// A case that the file of --tuning has an entry for.
struct TunedCase {
  std::string scenario, id;
  std::string why_not;  // why auto chooses after all: the device cannot launch it; "" = it does not
};

// What `run` and `verify` were asked to do; the command line fills it.
struct RunRequest {
  std::vector<Scenario> scenarios;
  std::vector<std::string> overrides;                // the --set values, for repro lines
  std::string tuning_file;                           // that cases were told by, for the same
  std::vector<TunedCase> tuned;                      // by it
  std::int64_t max_cases = LoadOptions{}.max_cases;  // with which they were loaded, for the same
  std::vector<std::string> backends;  // replaces those of the scenarios when not empty
  bool all_backends = false;          // `verify`: every usable one when none is named
  std::vector<std::string> filters;
  std::vector<std::string> cases;  // globs of case ids; empty = all
  bool relations = false;          // level 3 as well
  bool timing = true;
  bool buffers_apart = false;  // proofs allocate each buffer of a GPU on its own
  bool touch = false;          // beside each time that of a kernel that only touches the operands
  bool shuffle = false;        // rows in an order drawn from the seed
  std::int64_t repeat = 1;
  std::vector<std::filesystem::path> out;
  std::vector<std::string> columns;  // of those that are tables; empty = the default set
  std::string rank_by;               // of those as well, see report/screen.h
  std::optional<std::filesystem::path> resume;
  std::optional<std::filesystem::path> samples_to;
  Thresholds thresholds;  // each that is set replaces the scenario's
  bool resumable = true;  // whether the command of argv takes --resume
  bool isolate = false;   // each backend in a process of its own
  std::int64_t jobs = 1;  // processes that prove cases side by side; 0 = as many as pay here
  bool counters = false;  // of one launch of each PASSED row on a GPU
  bool quiet = false;
  std::vector<std::string> argv;
};

// Whether buffers on a GPU are kept side by side with their image on the host. That is for proofs
// alone: what is copied in is sent when it is synchronized, and timing does not wait for that
// before each run.
[[nodiscard]] inline bool mirrors_buffers(const RunRequest& request) {
  return !request.timing && !request.counters && !request.buffers_apart;
}

struct RunReport {
  Context context;
  std::vector<Row> rows;  // resumed ones first
  ExitCode exit = ExitCode::kPass;
  bool interrupted = false;
  std::vector<std::string> notes;  // lines for stderr on what makes rows of this run differ
  std::string ending;  // a sentence for stderr when the run ended early or proved nothing
};

// One planned row: which case on which backend.
struct PlannedRow {
  const Case* spec = nullptr;
  std::string backend;  // as in rows
  std::int64_t repetition = 0;
  std::string spelling;  // of the backend, as the command line takes it
};
// Cases x backends after selection; throws UsageError when nothing is left, or what is wrong with
// the cases that are chosen and cannot be.
[[nodiscard]] std::vector<PlannedRow> plan_rows(const RunRequest& request);

// Runs the planned rows of the request: one by one into the file sinks, all into the report.
// Throws UsageError before any work.
[[nodiscard]] RunReport run(const RunRequest& request, const std::vector<PlannedRow>& planned);

// The exit code of rows: the worst of them; a missed threshold is kRegression; if none PASSED,
// at least kInconclusive.
[[nodiscard]] ExitCode judge(const std::vector<Row>& rows);

// Those of the case, each replaced by the one of the command line that is set.
[[nodiscard]] Thresholds thresholds_of(const Case& spec, const Thresholds& asked);

// Throws UsageError, before any work, where one of the rows has a threshold and takes no time to
// judge by it: passing would say more than was looked at. `max_regression` is for `compare`.
void refuse_unjudged(const RunRequest& request, const std::vector<PlannedRow>& planned);

}  // namespace lora_bench
