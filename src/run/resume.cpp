#include "run/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>

#include "core/error.h"
#include "report/columns.h"
#include "report/doubts.h"
#include "run/describe.h"
#include "run/row_of.h"
#include "run/run.h"
#include "verify/verify.h"
#include "workload/problem.h"

namespace lora_bench {
namespace {

constexpr double kRounding = 1e-9;

[[noreturn]] void refuse(const RunRequest& request, const std::string& reason) {
  throw UsageError(fmt::format("cannot resume {}: {}; start a file of its own with --out",
                               request.resume->string(), reason));
}

// A run that was killed leaves a cut line; whatever else reading warns of, no run wrote.
void refuse_edited(const RunRequest& request, const Results& stored) {
  for (const std::string& warning : stored.warnings) {
    if (!warning.ends_with("last line is cut in the middle; dropped")) {
      refuse(request, warning);
    }
  }
}

void refuse_other_plugins(const RunRequest& request, const std::vector<Row>& rows,
                          const std::map<std::string, Selected>& selected) {
  for (const auto& [spelling, backend] : selected) {
    for (const Row& row : rows) {
      if (row.id.backend == backend.name && row.id.plugin != backend.plugin) {
        throw UsageError(fmt::format(
            "cannot resume {}: its rows of {} came from '{}', this is '{}'; give it another name, "
            "NAME=PATH, or start a file of its own with --out",
            request.resume->string(), row.id.backend, row.id.plugin, backend.plugin));
      }
    }
  }
}

// What a row says of its case beyond its names, as this run would write it.
void refuse_other_description(const RunRequest& request, const Row& row, const Row& planned) {
  if (const std::string other = other_case(row, planned); !other.empty()) {
    refuse(request, fmt::format("its row of {} {} is {}", row.id.case_id, row.id.backend, other));
  }
  for (const char* key : {"intermediate", "scale_at", "slots", "active", "add_inputs", "bias",
                          "semantics", "cache", "bytes", "weight_bytes", "flops"}) {
    const Column& column = *find_column(key);
    if (const Cell stored = column.get(row); stored != column.get(planned)) {
      refuse(request,
             fmt::format("its row of {} {} has the {} '{}', this run '{}'", row.id.case_id,
                         row.id.backend, key, file_text(stored), file_text(column.get(planned))));
    }
  }
}

// What one set of operands adds to the bytes that are rotated.
std::int64_t touched_bytes_of(const Row& planned, CacheMode cache) {
  if (cache == CacheMode::kHot) {
    return 0;
  }
  return cache == CacheMode::kCold ? planned.step.bytes : planned.step.weight_bytes;
}

std::vector<std::string> levels_of(const Row& row) {
  std::vector<std::string> levels;
  std::istringstream text(row.proof.levels);
  for (std::string level; std::getline(text, level, '+');) {
    levels.push_back(level);
  }
  return levels;
}

// In what a pass was proved otherwise than this run proves it; "" = nothing.
std::string other_proof(const RunRequest& request, const Row& row, const Case& spec,
                        const Problem& problem) {
  if (row.status != Status::kPassed) {
    return "";
  }
  if (!spec.verify.enabled) {
    return "is PASSED, and this run proves nothing (verify.enabled is false)";
  }
  const std::vector<std::string> levels = levels_of(row);
  const auto proved = [&](Level level) {
    return std::find(levels.begin(), levels.end(), name(level)) != levels.end();
  };
  const bool relations = request.relations || spec.verify.relations;
  if (!proved(Level::kMemory) || proved(Level::kRelations) != relations) {
    return fmt::format("is proved at '{}', this run proves memory with{} relations",
                       row.proof.levels, relations ? "" : "out");
  }
  const double all = static_cast<double>(std::max<std::int64_t>(problem.tokens, 1));
  const auto rows = sample_rows(problem, spec.verify.max_rows, spec.seed).size();
  const double checked = problem.tokens == 0 ? 1 : static_cast<double>(rows) / all;
  return row.proof.rows_checked.value_or(0) < checked * (1 - kRounding)
             ? fmt::format("has the rows_checked {}, this run {}",
                           row.proof.rows_checked.value_or(0), checked)
             : "";
}

// The same of how it was launched and timed. With --isolate only the worker knows the space.
std::string other_timing(const Row& row, const Row& planned, const CaseStep& step, CacheMode cache,
                         const Selected* selected) {
  if (row.status != Status::kPassed) {
    return "";
  }
  const bool known = selected != nullptr && selected->backend;
  const bool on_host = known && selected->backend->space() == Space::kHost;
  if (row.step.mode != (on_host ? "host" : planned.step.mode) &&
      (known || row.step.mode != "host")) {
    return fmt::format("has the mode '{}', this run '{}'", row.step.mode,
                       on_host ? "host" : planned.step.mode);
  }
  if (!row.time.us || step.layer) {
    return "";
  }
  const std::int64_t sets = row.time.rotation_sets.value_or(0);
  const bool hot = cache == CacheMode::kHot;
  const std::int64_t touched = touched_bytes_of(planned, cache);
  if (sets < 1 || (hot && sets != 1) || row.time.rotated_bytes.value_or(-1) != sets * touched) {
    return fmt::format("rotates {} bytes in {} sets, and one set of this run has {}",
                       row.time.rotated_bytes ? fmt::format("{}", *row.time.rotated_bytes) : "no",
                       sets, touched);
  }
  return "";
}

// What its time says of this run's thresholds: the exit code hangs on it.
std::string other_judgement(const RunRequest& request, const Row& row, const Case& spec) {
  if (!row.time.us) {
    return "";
  }
  Row judged;
  judged.limits = held_to(row, thresholds_of(spec, request.thresholds));
  for (const char* key : {"max_regression", "threshold_missed", "threshold_undecided"}) {
    const Column& column = *find_column(key);
    if (const Cell stored = column.get(row); stored != column.get(judged)) {
      return fmt::format("has the {} '{}', this run '{}'", key, file_text(stored),
                         file_text(column.get(judged)));
    }
  }
  return "";
}

std::string other_repetition(const RunRequest& request, const Row& row) {
  return row.id.repetition >= 0 && row.id.repetition < request.repeat
             ? ""
             : fmt::format("is repetition {}, this run has those from 0 to {}", row.id.repetition,
                           request.repeat - 1);
}

const Selected* selected_of(const Row& row, const std::map<std::string, Selected>& selected) {
  const auto found = std::find_if(selected.begin(), selected.end(), [&](const auto& entry) {
    return entry.second.name == row.id.backend;
  });
  return found == selected.end() ? nullptr : &found->second;
}

void refuse_other_cases(const RunRequest& request, const std::vector<Row>& rows,
                        const std::map<std::string, Selected>& selected,
                        const std::vector<PlannedRow>& planned) {
  std::map<std::tuple<std::string, std::string>, const Case*> specs;
  for (const PlannedRow& row : planned) {
    specs.emplace(std::make_tuple(row.spec->scenario, row.spec->id), row.spec);
  }
  for (const Row& row : rows) {
    const auto found = specs.find({row.id.scenario, row.id.case_id});
    if (found == specs.end()) {
      continue;
    }
    const Case& spec = *found->second;
    const CaseStep step = step_of(spec);
    const Row described = describe_case(spec, step, row.id.backend);
    refuse_other_description(request, row, described);
    for (const std::string& other :
         {other_proof(request, row, spec, step.op),
          other_timing(row, described, step, spec.measure.cache, selected_of(row, selected)),
          other_judgement(request, row, spec), other_repetition(request, row)}) {
      if (!other.empty()) {
        refuse(request, fmt::format("its row of {} {} {}", row.id.case_id, row.id.backend, other));
      }
    }
    if (row.status == Status::kPassed && request.timing && spec.measure.enabled && !row.time.us) {
      refuse(request, fmt::format("its row of {} {} is PASSED without a time, which this run takes",
                                  row.id.case_id, row.id.backend));
    }
  }
}

}  // namespace

std::vector<Row> resumed_rows(const RunRequest& request, const Context& context,
                              const std::map<std::string, Selected>& selected,
                              const std::vector<PlannedRow>& planned) {
  if (request.resume && request.resume->extension() != ".jsonl") {
    throw UsageError(fmt::format("cannot resume '{}': only .jsonl files can be resumed",
                                 request.resume->string()));
  }
  if (!request.resume || !std::filesystem::exists(*request.resume)) {
    return {};
  }
  Results stored = read_results(*request.resume);
  if (const std::string reason = why_not_resumable(stored.context, context); !reason.empty()) {
    refuse(request, reason);
  }
  refuse_other_plugins(request, stored.rows, selected);
  refuse_edited(request, stored);
  refuse_other_cases(request, stored.rows, selected, planned);
  return std::move(stored.rows);
}

}  // namespace lora_bench
