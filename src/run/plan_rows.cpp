#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/random.h"
#include "report/filter.h"
#include "run/describe.h"
#include "run/run.h"
#include "run/select.h"
#include "scenario/diagnostics.h"
#include "workload/problem.h"

namespace lora_bench {

namespace {

constexpr std::uint64_t kShuffleStream = 0x5348554646;  // "SHUFF"

// Of ops without products, which few backends do, nobody who names none asks the others.
std::vector<std::string> who_does(Op op, const std::vector<std::string>& names) {
  static const std::map<std::string, std::shared_ptr<const Backend>> kBackends = [] {
    std::map<std::string, std::shared_ptr<const Backend>> backends;
    for (const std::string& name : usable_backends()) {
      backends[name] = select_backend(name).backend;
    }
    return backends;
  }();
  std::vector<std::string> some;
  std::copy_if(names.begin(), names.end(), std::back_inserter(some), [&](const std::string& name) {
    const auto found = kBackends.find(name);
    return found != kBackends.end() &&
           (op == Op::kMetadata ? found->second->metadata() != nullptr
                                : found->second->quantiser() != nullptr);
  });
  return some;
}

std::vector<std::string> names_for(const RunRequest& request, const Case& spec) {
  if (!request.backends.empty()) {
    return request.backends;
  }
  if (!spec.backends.empty()) {
    return spec.backends;
  }
  const std::vector<std::string> names =
      request.all_backends ? usable_backends() : default_backends();
  return has_products(spec.op) ? names : who_does(spec.op, names);
}

std::vector<std::string> ids_of(const std::vector<Scenario>& scenarios) {
  std::vector<std::string> ids;
  for (const Scenario& scenario : scenarios) {
    for (const Case& spec : scenario.cases) {
      ids.push_back(spec.id);
    }
    for (const RefusedCase& refused : scenario.refused) {
      ids.push_back(refused.spec.id);
    }
  }
  return ids;
}

// What a case draws cannot be known of one that cannot be: only what it says itself rules it out.
bool may_be_selected(const RunRequest& request, const Filter& filter, const Case& spec) {
  const std::vector<std::string> names = names_for(request, spec);
  return case_selected(request.cases, spec.id) &&
         std::any_of(names.begin(), names.end(), [&](const std::string& spelling) {
           return !filter.rules_out(describe_spec(spec, backend_name(spelling)),
                                    columns_of_spec(spec));
         });
}

// Cases that nobody asked for stop nothing.
void refuse_selected(const RunRequest& request, const Filter& filter) {
  Diagnostics wrong;
  for (const Scenario& scenario : request.scenarios) {
    for (const RefusedCase& refused : scenario.refused) {
      if (may_be_selected(request, filter, refused.spec)) {
        wrong.add_all(refused.why);
      }
    }
  }
  wrong.throw_if_any();
}

std::string nothing_selected(const RunRequest& request) {
  std::string text = "no case is left to run";
  if (!request.filters.empty()) {
    text += ": --filter matches none; `lora-bench plan` shows what there is";
  }
  return text;
}

void shuffle(std::vector<PlannedRow>& rows, std::uint64_t seed) {
  for (std::size_t i = rows.size(); i > 1; --i) {
    std::swap(rows[i - 1], rows[random_below(seed, kShuffleStream, i, i)]);
  }
}

// Two rows of one name could not be told apart: compare would pool them, --resume skip one.
void refuse_twins(const std::vector<PlannedRow>& rows) {
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  for (const PlannedRow& row : rows) {
    if (!seen.emplace(row.spec->scenario, row.spec->id, row.backend).second) {
      throw UsageError(fmt::format(
          "case '{}' of scenario '{}' would run twice with backend '{}': name each scenario and "
          "backend once, tell plugins apart by NAME=PATH, or use --repeat",
          row.spec->id, row.spec->scenario, row.backend));
    }
  }
}

}  // namespace

std::vector<PlannedRow> plan_rows(const RunRequest& request) {
  refuse_unmatched_cases(request.cases, ids_of(request.scenarios), "run");
  std::vector<std::string> swept;
  for (const Scenario& scenario : request.scenarios) {
    swept.insert(swept.end(), scenario.sweep_keys.begin(), scenario.sweep_keys.end());
  }
  const Filter filter(request.filters, swept);
  filter.refuse_results();
  refuse_selected(request, filter);
  std::vector<PlannedRow> rows;
  for (const Scenario& scenario : request.scenarios) {
    for (const Case& spec : scenario.cases) {
      if (!case_selected(request.cases, spec.id)) {
        continue;
      }
      std::optional<CaseStep> step;
      for (const std::string& spelling : names_for(request, spec)) {
        const std::string backend = backend_name(spelling);
        if (!request.filters.empty()) {
          if (!step) {
            step = step_of(spec);
          }
          if (!filter.matches(describe_case(spec, *step, backend))) {
            continue;
          }
        }
        rows.push_back({&spec, backend, 0, spelling});
      }
    }
  }
  if (rows.empty()) {
    throw UsageError(nothing_selected(request));
  }
  refuse_twins(rows);
  const std::size_t once = rows.size();
  for (std::int64_t repetition = 1; repetition < request.repeat; ++repetition) {
    for (std::size_t i = 0; i < once; ++i) {
      rows.push_back({rows[i].spec, rows[i].backend, repetition, rows[i].spelling});
    }
  }
  if (request.shuffle) {
    shuffle(rows, request.scenarios.front().cases.front().seed);
  }
  return rows;
}

namespace {

const char* named_threshold(const Thresholds& thresholds) {
  for (const ThresholdField& field : kThresholdFields) {
    if (thresholds.*field.value) {
      return field.name;
    }
  }
  return nullptr;
}

}  // namespace

Thresholds thresholds_of(const Case& spec, const Thresholds& asked) {
  Thresholds thresholds = spec.thresholds;
  for (const ThresholdField& field : kThresholdFields) {
    if (asked.*field.value) {
      thresholds.*field.value = asked.*field.value;
    }
  }
  if (asked.max_regression) {
    thresholds.max_regression = asked.max_regression;
  }
  return thresholds;
}

void refuse_unjudged(const RunRequest& request, const std::vector<PlannedRow>& planned) {
  for (const PlannedRow& row : planned) {
    const Thresholds thresholds = thresholds_of(*row.spec, request.thresholds);
    if (thresholds.max_tax_pct && !has_base(row.spec->op)) {
      throw UsageError(fmt::format(
          "threshold max_tax_pct would not be judged: case {} is no layer, so has no tax",
          row.spec->id));
    }
    const char* threshold = named_threshold(thresholds);
    if (threshold == nullptr || (request.timing && row.spec->measure.enabled)) {
      continue;
    }
    const bool asked = named_threshold(request.thresholds) != nullptr;
    throw UsageError(fmt::format(
        "threshold {} of {} would not be judged: nothing is timed with {}; leave that out, or {}",
        threshold, asked ? "the command line" : "case " + row.spec->id,
        request.timing ? "measure: false" : "--no-time",
        asked ? "the threshold" : "prove alone with `lora-bench verify`"));
  }
}

}  // namespace lora_bench
