#include "run/resume.h"

#include <fmt/format.h>

#include <tuple>

#include "core/error.h"
#include "report/columns.h"
#include "report/doubts.h"
#include "run/context.h"
#include "run/describe.h"
#include "workload/problem.h"

namespace lora_bench {
namespace {

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
      if (row.backend == backend.name && row.plugin != backend.plugin) {
        throw UsageError(fmt::format(
            "cannot resume {}: its rows of {} came from '{}', this is '{}'; give it another name, "
            "NAME=PATH, or start a file of its own with --out",
            request.resume->string(), row.backend, row.plugin, backend.plugin));
      }
    }
  }
}

// What a row says of its case beyond its names, as this run would write it.
void refuse_other_description(const RunRequest& request, const Row& row, const Row& planned) {
  if (const std::string other = other_case(row, planned); !other.empty()) {
    refuse(request, fmt::format("its row of {} {} is {}", row.case_id, row.backend, other));
  }
  for (const char* key : {"intermediate", "scale_at", "slots", "active", "add_inputs", "bias",
                          "cache", "bytes", "weight_bytes", "flops"}) {
    const Column& column = *find_column(key);
    if (const Cell stored = column.get(row); stored != column.get(planned)) {
      refuse(request,
             fmt::format("its row of {} {} has the {} '{}', this run '{}'", row.case_id,
                         row.backend, key, file_text(stored), file_text(column.get(planned))));
    }
  }
}

void refuse_other_cases(const RunRequest& request, const std::vector<Row>& rows,
                        const std::vector<PlannedRow>& planned) {
  std::map<std::tuple<std::string, std::string>, const Case*> specs;
  for (const PlannedRow& row : planned) {
    specs.emplace(std::make_tuple(row.spec->scenario, row.spec->id), row.spec);
  }
  for (const Row& row : rows) {
    const auto found = specs.find({row.scenario, row.case_id});
    if (found == specs.end()) {
      continue;
    }
    const Case& spec = *found->second;
    const Problem problem = make_problem(spec, draw_batch(spec), draw_adapters(spec));
    refuse_other_description(request, row, describe_case(spec, problem, row.backend));
    if (row.status == Status::kPassed && request.timing && spec.measure.enabled && !row.time_us) {
      refuse(request, fmt::format("its row of {} {} is PASSED without a time, which this run takes",
                                  row.case_id, row.backend));
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
  refuse_other_cases(request, stored.rows, planned);
  return std::move(stored.rows);
}

}  // namespace lora_bench
