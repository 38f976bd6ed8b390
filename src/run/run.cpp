#include "run/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "device/cupti.h"
#include "device/launch_counters.h"
#include "report/sink.h"
#include "run/case_runner.h"
#include "run/context.h"
#include "run/crew.h"
#include "run/describe.h"
#include "run/isolate.h"
#include "run/progress.h"
#include "run/row_of.h"
#include "run/select.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

using Identity = std::tuple<std::string, std::string, std::string, std::int64_t>;

Identity identity(const Row& row) {
  return {row.id.scenario, row.id.case_id, row.id.backend, row.id.repetition};
}

std::vector<std::string> spellings(const std::vector<PlannedRow>& rows) {
  std::set<std::string> each;
  for (const PlannedRow& row : rows) {
    each.insert(row.spelling);
  }
  return {each.begin(), each.end()};
}

std::map<std::string, Selected> select_all(const std::vector<PlannedRow>& rows) {
  std::map<std::string, Selected> selected;
  const double most_seconds = rows.front().spec->verify.timeout_s;
  for (const std::string& spelling : spellings(rows)) {
    selected.emplace(spelling, select_backend(spelling, most_seconds));
  }
  return selected;
}

// The machine the file speaks of: the GPU if any chosen backend works there.
Space main_space(const std::map<std::string, Selected>& selected) {
  return std::any_of(selected.begin(), selected.end(),
                     [](const auto& entry) { return runs_on_gpu(entry.second); })
             ? Space::kDevice
             : Space::kHost;
}

std::int64_t layers_among(const std::vector<PlannedRow>& planned) {
  return std::count_if(planned.begin(), planned.end(),
                       [](const PlannedRow& row) { return has_base(row.spec->op); });
}

// What counts the launches of a run that asked for it; null for one that did not. Throws
// EnvironmentError where counters cannot be read, and UsageError where nothing would be counted.
std::shared_ptr<const CounterSession> open_counters(const RunRequest& request,
                                                    const std::vector<PlannedRow>& planned,
                                                    Space space) {
  if (!request.counters) {
    return nullptr;
  }
  auto session = std::make_shared<const CounterSession>();
  if (space == Space::kHost) {
    throw UsageError(fmt::format(
        "--counters would count nothing: it counts on a GPU, where none of the chosen backends "
        "runs ({})",
        fmt::join(spellings(planned), ", ")));
  }
  if (layers_among(planned) == std::ssize(planned)) {
    throw UsageError("--counters would count nothing: all chosen rows are whole layers");
  }
  return session;
}

std::vector<std::string> what_is_not_counted(const CounterSession& session,
                                             const std::vector<PlannedRow>& planned) {
  std::vector<std::string> notes;
  if (!session.missing().empty()) {
    notes.push_back(session.missing());
  }
  const std::int64_t layers = layers_among(planned);
  if (layers > 0) {
    notes.push_back(fmt::format("{} rows of whole layers are not counted", layers));
  }
  return notes;
}

// Two sinks on one file would write over each other's rows, and --out empties what --resume keeps.
void refuse_one_file_twice(const RunRequest& request) {
  std::vector<std::filesystem::path> files = request.out;
  for (const std::optional<std::filesystem::path>& path : {request.resume, request.samples_to}) {
    if (path) {
      files.push_back(*path);
    }
  }
  std::set<std::filesystem::path> seen;
  for (const std::filesystem::path& path : files) {
    std::error_code unknown;
    const std::filesystem::path real = std::filesystem::weakly_canonical(path, unknown);
    if (!seen.insert(unknown ? path : real).second) {
      throw UsageError(fmt::format(
          "'{}' would be written twice; --out, --resume and --samples-to need a file each",
          path.string()));
    }
  }
}

// 0 where there is none.
std::uintmax_t bytes_of(const std::optional<std::filesystem::path>& file) {
  std::error_code none;
  const std::uintmax_t bytes = file ? std::filesystem::file_size(*file, none) : 0;
  return none ? 0 : bytes;
}

class FileSinks {
 public:
  // `resumed_bytes`: of the file of --resume when its rows were read.
  FileSinks(const RunRequest& request, const Context& context, std::uintmax_t resumed_bytes) {
    if (request.resume) {
      const bool append = std::filesystem::exists(*request.resume);
      std::unique_ptr<Sink> sink = make_file_sink(*request.resume, append);
      if (bytes_of(request.resume) != resumed_bytes) {  // before it was locked
        throw EnvironmentError(
            fmt::format("cannot resume {}: another lora-bench wrote rows into it just now; run "
                        "the command again",
                        request.resume->string()));
      }
      add(std::move(sink), context);
    }
    for (const std::filesystem::path& path : request.out) {
      add(make_file_sink(path, false, request.columns, request.rank_by), context);
    }
    if (request.samples_to) {
      add(make_samples_sink(*request.samples_to), context);
    }
  }
  void row(const Row& row) {
    for (const auto& sink : sinks_) {
      sink->row(row);
    }
  }
  void finish() {
    for (const auto& sink : sinks_) {
      sink->finish();
    }
  }
  // Rows that were stored earlier go into the fresh files, not into the one they came from.
  void replay(const std::vector<Row>& rows, bool first_has_them) {
    for (std::size_t i = first_has_them ? 1 : 0; i < sinks_.size(); ++i) {
      for (const Row& row : rows) {
        sinks_[i]->row(row);
      }
    }
  }

 private:
  void add(std::unique_ptr<Sink> sink, const Context& context) {
    sink->begin(context);
    sinks_.push_back(std::move(sink));
  }
  std::vector<std::unique_ptr<Sink>> sinks_;
};

// The command of this run with --resume in the place of the --out that keeps its rows.
std::string how_to_resume(const RunRequest& request) {
  if (!request.resumable) {
    return "interrupted; the rows above are those that were proved";
  }
  std::string file = request.resume ? request.resume->string() : "";
  for (const std::filesystem::path& path : request.out) {
    if (file.empty() && path.extension() == ".jsonl") {
      file = path.string();
    }
  }
  if (file.empty()) {
    return "interrupted; with --out FILE.jsonl a run can be resumed";
  }
  std::string command = "interrupted; go on with:";
  for (std::size_t i = 0; i < request.argv.size(); ++i) {
    const bool keeps_rows = i + 1 < request.argv.size() && request.argv[i + 1] == file;
    if (request.argv[i] == "--out" && keeps_rows) {
      command += " --resume";
    } else if (request.argv[i] == "--out=" + file) {
      command += " " + shell_quoted("--resume=" + file);
    } else {
      command += " " + shell_quoted(request.argv[i]);
    }
  }
  return command;
}

// Whether the run can go on after the row. A hung device backend holds the device: nothing after it
// would be true, unless its process ended with it.
bool can_go_on(const Row& row, const Selected& selected) {
  return row.status != Status::kHung || !selected.backend ||
         selected.backend->space() == Space::kHost;
}

class Loop {
 public:
  Loop(const RunRequest& request, RunReport& report, FileSinks& sinks,
       const std::map<std::string, Selected>& selected, Targets& targets, Isolation* isolation,
       std::int64_t jobs, CountLaunch count)
      : request_(request),
        report_(report),
        sinks_(sinks),
        selected_(selected),
        targets_(targets),
        isolation_(isolation),
        jobs_(jobs),
        count_(std::move(count)) {}

  void over(const std::vector<PlannedRow>& planned) {
    std::set<Identity> done;
    for (const Row& row : report_.rows) {
      done.insert(identity(row));
    }
    std::vector<PlannedRow> left;
    for (const PlannedRow& row : planned) {
      if (done.find({row.spec->scenario, row.spec->id, row.backend, row.repetition}) ==
          done.end()) {
        left.push_back(row);
      }
    }
    Progress progress(static_cast<std::int64_t>(left.size()), request_.quiet);
    if (jobs_ > 1) {
      side_by_side(left, progress);
      return;
    }
    for (const PlannedRow& row : left) {
      if (interrupted()) {
        end_early();
        return;
      }
      progress.begin(title(row));
      const bool goes_on = keep(row, row_of(row));
      tell_of_ceilings_anew(progress);
      if (!goes_on) {
        return;
      }
      progress.end();
    }
  }

 private:
  [[nodiscard]] static std::string title(const PlannedRow& row) {
    return fmt::format("{} {} {}", row.spec->scenario, row.spec->id, row.backend);
  }

  void side_by_side(const std::vector<PlannedRow>& left, Progress& progress) {
    const Crew crew{.request = request_, .selected = selected_, .processes = jobs_};
    const bool all = make_rows(crew, left, [&](const PlannedRow& planned, const Row& row) {
      progress.begin(title(planned));
      progress.end();
      return keep(planned, row);
    });
    if (!all && interrupted()) {
      end_early();
    }
  }

  // Said when it happens, so that a long run can be ended, and once more at the end.
  void tell_of_ceilings_anew(Progress& progress) {
    const std::int64_t rows = rows_of_old_ceilings(report_.rows);
    if (rows > 0) {
      const Space space = report_.rows.back().step.mode == "host" ? Space::kHost : Space::kDevice;
      report_.notes.push_back(note_on_ceilings_anew(rows, targets_.facts(space).name));
      progress.clear();
      fmt::print(stderr, "{}\n", report_.notes.back());
    }
  }

  void end_early() {
    report_.interrupted = true;
    report_.ending = how_to_resume(request_);
  }

  Row row_of(const PlannedRow& planned) {
    if (isolation_ != nullptr) {
      return isolation_->run(planned);
    }
    const Selected& selected = selected_.at(planned.spelling);
    return run_case({.spec = *planned.spec,
                     .backend = selected,
                     .relations = request_.relations,
                     .timing = request_.timing,
                     .touch = request_.touch,
                     .thresholds = thresholds_of(*planned.spec, request_.thresholds),
                     .repro = repro_command(*planned.spec, planned.spelling, request_),
                     .count = runs_on_gpu(selected) ? count_ : nullptr},
                    targets_, groundwork_);
  }

  // Whether the run can go on.
  bool keep(const PlannedRow& planned, Row row) {
    row.id.repetition = planned.repetition;
    row.origin = origin_of(report_.context);
    report_.rows.push_back(row);
    // A row whose sampling was cut short is shown but not stored: --resume measures it anew.
    if (row.interrupted) {
      end_early();
      return false;
    }
    sinks_.row(row);
    if (jobs_ == 1 && !can_go_on(row, selected_.at(planned.spelling))) {
      report_.ending = fmt::format("{} hung on the device; the run ends here", planned.backend);
      report_.exit = worse(report_.exit, ExitCode::kEnvironment);
      return false;
    }
    return true;
  }

  const RunRequest& request_;
  RunReport& report_;
  FileSinks& sinks_;
  const std::map<std::string, Selected>& selected_;
  Targets& targets_;
  KeptGroundwork groundwork_;
  Isolation* isolation_;  // null = rows run in this process, or in several side by side
  std::int64_t jobs_;     // processes that make rows
  CountLaunch count_;     // empty = nothing is counted
};

// Sentences on the backends that were named and of which no row PASSED: others that did say nothing
// about them. One of which a row is wrong has said so itself.
std::vector<std::string> named_without_pass(const RunRequest& request,
                                            const std::vector<PlannedRow>& planned,
                                            const std::vector<Row>& rows) {
  std::set<std::string> named;
  for (const PlannedRow& row : planned) {
    if (std::find(request.backends.begin(), request.backends.end(), row.spelling) !=
        request.backends.end()) {
      named.insert(row.backend);
    }
  }
  std::vector<std::string> sentences;
  for (const std::string& backend : named) {
    std::map<Status, std::int64_t> counts;
    std::string why;
    for (const Row& row : rows) {
      if (row.id.backend == backend) {
        ++counts[row.status];
        why = why.empty() ? row.message : why;
      }
    }
    const bool told = std::any_of(counts.begin(), counts.end(), [](const auto& count) {
      return count.first == Status::kPassed || exit_code(count.first) == ExitCode::kWrongResult;
    });
    if (counts.empty() || told) {
      continue;
    }
    std::vector<std::string> each;
    for (const auto& [status, count] : counts) {
      each.push_back(fmt::format("{} {}", count, name(status)));
    }
    sentences.push_back(fmt::format("{} was named and has no PASSED row: {}{}{}", backend,
                                    fmt::join(each, ", "), why.empty() ? "" : ": ", why));
  }
  return sentences;
}

}  // namespace

ExitCode judge(const std::vector<Row>& rows) {
  ExitCode code = ExitCode::kPass;
  bool any_passed = false;
  for (const Row& row : rows) {
    code = worse(code, exit_code(row.status));
    any_passed = any_passed || row.status == Status::kPassed;
    if (!row.limits.missed.empty()) {
      code = worse(code, ExitCode::kRegression);
    }
    if (!row.limits.undecided.empty()) {
      code = worse(code, ExitCode::kInconclusive);
    }
  }
  return any_passed ? code : worse(code, ExitCode::kInconclusive);
}

RunReport run(const RunRequest& request, const std::vector<PlannedRow>& planned) {
  refuse_one_file_twice(request);
  std::unique_ptr<Isolation> isolation;
  if (request.isolate) {
    isolation = std::make_unique<Isolation>(request, spellings(planned));
  }
  const std::map<std::string, Selected> selected =
      isolation ? isolation->selected() : select_all(planned);
  const Space space = isolation ? isolation->space() : main_space(selected);
  const std::shared_ptr<const CounterSession> counters = open_counters(request, planned, space);
  CountLaunch count;
  Targets targets(mirrors_buffers(request));
  RunReport report;
  if (counters) {
    count = [counters](const std::function<void()>& prepare, const std::function<void()>& launch) {
      return counters->count(prepare, launch);
    };
    report.notes = what_is_not_counted(*counters, planned);
  }
  report.context = make_context(targets.facts(space), request.scenarios, request.argv);
  const std::uintmax_t resumed_bytes = bytes_of(request.resume);
  report.rows = resumed_rows(request, report.context, selected, planned);
  FileSinks sinks(request, report.context, resumed_bytes);
  sinks.replay(report.rows, request.resume.has_value());
  try {
    Loop(request, report, sinks, selected, targets, isolation.get(),
         jobs_of(request, selected, space), count)
        .over(planned);
  } catch (const EnvironmentError& error) {
    report.ending = error.what();
    report.exit = worse(report.exit, ExitCode::kEnvironment);
  }
  try {
    sinks.finish();
  } catch (const EnvironmentError& error) {
    report.ending = error.what();
    report.exit = worse(report.exit, ExitCode::kEnvironment);
  }
  report.exit = worse(report.exit, judge(report.rows));
  const std::vector<std::string> unproved = named_without_pass(request, planned, report.rows);
  report.notes.insert(report.notes.end(), unproved.begin(), unproved.end());
  if (report.interrupted || !unproved.empty()) {
    report.exit = worse(report.exit, ExitCode::kInconclusive);
  }
  return report;
}

}  // namespace lora_bench
