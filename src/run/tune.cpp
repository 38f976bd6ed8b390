#include "run/tune.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "ops/auto_tuning.h"
#include "scenario/scenario.h"
#include "workload/problem.h"

namespace lora_bench {
namespace {

struct ClassToTune {
  ShapeClass shape;
  const Case* spec;
  Problem problem;
};

std::vector<ClassToTune> classes_of(const std::vector<PlannedRow>& rows) {
  std::vector<ClassToTune> classes;
  for (const PlannedRow& row : rows) {
    Problem problem = make_problem(*row.spec);
    const ShapeClass shape = shape_class(problem);
    if (problem.plan.active() > 0 &&
        std::none_of(classes.begin(), classes.end(),
                     [&](const ClassToTune& known) { return known.shape == shape; })) {
      classes.push_back({shape, row.spec, std::move(problem)});
    }
  }
  return classes;
}

// To tell candidates apart: a third of the time of a row is the default's warm-up and samples.
void hurry(MeasureSettings& measure) {
  constexpr double kWarmupMs = 10;
  constexpr double kSamplesMs = 20;
  constexpr std::int64_t kSamples = 40;
  measure.warmup_ms = std::min(measure.warmup_ms, kWarmupMs);
  measure.min_time_ms = std::min(measure.min_time_ms, kSamplesMs);
  measure.max_samples = std::min(measure.max_samples, kSamples);
  measure.min_samples = std::min(measure.min_samples, measure.max_samples);
}

void refuse_other_device(const TuningFile& tunings, const std::filesystem::path& file,
                         const TuningDevice& device) {
  if (tunings.device == device.name) {
    return;
  }
  Diagnostic diagnostic;
  diagnostic.where.file = file.string();
  diagnostic.what =
      device.here ? fmt::format("tunings of '{}' on '{}'", tunings.device, device.name)
                  : fmt::format("tunings of '{}'; there is no GPU here, and plan explains an '{}'",
                                tunings.device, device.name);
  diagnostic.allowed = "a file that `lora-bench tune` wrote on such a device";
  throw UsageError({diagnostic});
}

}  // namespace

TuneReport tune(const TuneRequest& request) {
  const std::vector<ClassToTune> classes = classes_of(request.rows);
  const double end = request.seconds() + request.limit_s;
  TuneReport report;
  report.classes = static_cast<std::int64_t>(classes.size());
  for (std::size_t i = 0; i < classes.size() && !request.interrupted(); ++i) {
    const ClassToTune& tuned = classes[i];
    const double now = request.seconds();
    if (now >= end) {
      break;
    }
    const double share_end = now + (end - now) / static_cast<double>(classes.size() - i);
    std::int64_t tried = 0;
    const TimeOf time_of = [&](const Tuning& tuning, bool again) {
      const std::string said = tuning_text(tuning);
      request.progress(report.searched, report.classes,
                       fmt::format("{}: {} tried, now {}", tuned.spec->id, tried++,
                                   said.empty() ? "as auto chooses" : said));
      Case spec = *tuned.spec;
      spec.tuning = tuning;
      if (!again) {
        hurry(spec.measure);
      }
      return request.time_of(spec);
    };
    const TuningSearch search = search_tuning(request.device, tuned.problem, time_of, [&] {
      return request.interrupted() || request.seconds() >= share_end;
    });
    report.tried += search.tried;
    if (request.interrupted()) {
      break;  // times that were cut short prove nothing
    }
    ++report.searched;
    if (search.found) {
      report.found.push_back(*search.found);
    }
    request.keep(report.found);
  }
  return report;
}

std::vector<TunedCase> apply_tunings(std::vector<Scenario>& scenarios, const TuningFile& tunings,
                                     const std::filesystem::path& file,
                                     const TuningDevice& device) {
  refuse_other_device(tunings, file, device);
  std::vector<TunedCase> tuned;
  for (Scenario& scenario : scenarios) {
    for (Case& spec : scenario.cases) {
      Problem problem = make_problem(spec);
      const ShapeClass shape = shape_class(problem);
      const auto known = std::find_if(tunings.shapes.begin(), tunings.shapes.end(),
                                      [&](const auto& entry) { return entry.shape == shape; });
      if (known == tunings.shapes.end()) {
        continue;
      }
      tuned.push_back({spec.scenario, spec.id, ""});
      if (!spec.tuning.empty()) {
        continue;
      }
      problem.tuning = known->tuning;
      tuned.back().why_not = why_not_tuned(device.device, problem);
      if (tuned.back().why_not.empty()) {
        spec.tuning = known->tuning;
      }
    }
    scenario.content_hash = content_hash(scenario.cases);
  }
  return tuned;
}

std::string tuning_notes(const std::vector<PlannedRow>& rows, const std::vector<TunedCase>& tuned,
                         const std::string& file) {
  const auto is_of_rows = [&](const TunedCase& known) {
    return std::any_of(rows.begin(), rows.end(), [&](const PlannedRow& row) {
      return row.spec->id == known.id && row.spec->scenario == known.scenario;
    });
  };
  bool fits = false;
  std::string notes;
  for (const TunedCase& known : tuned) {
    if (!is_of_rows(known)) {
      continue;
    }
    fits = true;
    if (!known.why_not.empty()) {
      notes += fmt::format("{}: auto chooses, not as {} says: {}\n", known.id, file, known.why_not);
    }
  }
  return fits ? notes : fmt::format("no entry of {} fits a case here\n", file);
}

}  // namespace lora_bench
