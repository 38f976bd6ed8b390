#include "run/isolate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "ops/plugin.h"
#include "report/json_row.h"
#include "run/describe.h"
#include "run/row_of.h"

namespace lora_bench {
namespace {

// What ended one process would end the one that runs the row again.
constexpr const char* kAgainIsolated = " --isolate";

void add_threshold(std::vector<std::string>& command, const char* key,
                   const std::optional<double>& value) {
  if (value) {
    command.insert(command.end(), {"--threshold", fmt::format("{}={}", key, *value)});
  }
}

// What makes rows of these backends in another process as this run would in its own.
std::vector<std::string> worker_command(const RunRequest& request, const std::string& backends) {
  std::vector<std::string> command{"lora-bench",
                                   "run",
                                   "--serve-rows",
                                   "--backends",
                                   backends,
                                   "--max-cases",
                                   std::to_string(request.max_cases)};
  for (const std::string& text : request.overrides) {
    command.insert(command.end(), {"--set", text});
  }
  for (const ThresholdField& field : kThresholdFields) {
    add_threshold(command, field.name, request.thresholds.*field.value);
  }
  if (request.relations) {
    command.emplace_back("--relations");
  }
  if (!request.timing) {
    command.emplace_back("--no-time");
  }
  if (request.touch) {
    command.emplace_back("--touch");
  }
  if (request.counters) {
    command.emplace_back("--counters");
  }
  command.emplace_back("--");
  for (const Scenario& scenario : request.scenarios) {
    command.push_back(scenario.cases.front().scenario_file);
  }
  return command;
}

std::string place_of_case(const RunRequest& request, const Case* spec) {
  for (std::size_t i = 0; i < request.scenarios.size(); ++i) {
    const std::vector<Case>& cases = request.scenarios[i].cases;
    if (spec >= cases.data() && spec < cases.data() + cases.size()) {
      return fmt::format("{} {}", i, spec - cases.data());
    }
  }
  throw std::logic_error("a planned case is of no scenario");
}

Selected without_loading(const std::string& spelling) {
  Selected selected;
  selected.name = backend_name(spelling);
  if (names_plugin(spelling)) {
    selected.plugin = plugin_provenance(find_plugin(spelling).file);
  }
  return selected;
}

}  // namespace

Isolation::Isolation(const RunRequest& request, const std::vector<std::string>& spellings)
    : request_(request) {
  for (const std::string& spelling : spellings) {
    Selected selected = without_loading(spelling);
    const IsolatedBackend& started = worker(spelling);
    if (started.refused()) {
      throw UsageError(started.hello());
    }
    selected.why_not_here = started.why_not_here();
    selected.plugin = started.plugin().empty() ? selected.plugin : started.plugin();
    on_device_ = on_device_ || started.on_device();
    selected_.emplace(spelling, std::move(selected));
  }
}

Isolation::Isolation(const RunRequest& request, std::map<std::string, Selected> selected)
    : request_(request), selected_(std::move(selected)) {
  std::vector<std::string> spellings;
  for (const auto& [spelling, one] : selected_) {
    spellings.push_back(spelling);
    on_device_ = on_device_ || runs_on_gpu(one);
  }
  together_ = fmt::format("{}", fmt::join(spellings, ","));
}

Isolation::~Isolation() = default;

Space Isolation::space() const { return on_device_ ? Space::kDevice : Space::kHost; }

std::string Isolation::served_as(const std::string& spelling) const {
  return together_.empty() ? spelling : together_;
}

IsolatedBackend& Isolation::worker(const std::string& served) {
  std::unique_ptr<IsolatedBackend>& found = workers_[served];
  if (!found) {
    found = std::make_unique<IsolatedBackend>(worker_command(request_, served));
  }
  return *found;
}

Row Isolation::run(const PlannedRow& planned) {
  const std::string served = served_as(planned.spelling);
  IsolatedBackend& asked = worker(served);
  const Answer answer = asked.ask(place_of_case(request_, planned.spec) + " " + planned.spelling);
  if (answer.kind == 'r' || answer.kind == 'i') {
    unusable_in_turn_ = 0;
    std::vector<std::string> unknown;
    Row row = row_from_json(nlohmann::json::parse(answer.text), unknown);
    row.interrupted = answer.kind == 'i';
    if (row.status == Status::kHung) {
      workers_.erase(served);  // what hangs in it must not slow the rows after it
      row.repro += kAgainIsolated;
    }
    return row;
  }
  const Case& spec = *planned.spec;
  Row row = row_of({.spec = spec,
                    .backend = selected_.at(planned.spelling),
                    .repro = repro_command(spec, planned.spelling, request_) + kAgainIsolated},
                   step_of(spec),
                   {.end = {{answer.kind == 'h' ? Status::kHung : Status::kError, answer.text}}});
  row.step.mode = asked.on_device() ? row.step.mode : "host";
  // One process that loses its device may be the kernel's fault; two fresh ones are the machine's.
  unusable_in_turn_ = answer.kind == 'e' && asked.asked() <= 1 ? unusable_in_turn_ + 1 : 0;
  if (answer.kind != 'h') {  // it would hang once more for every row
    workers_.erase(served);
  }
  if (unusable_in_turn_ > 1) {
    throw EnvironmentError(answer.text);
  }
  return row;
}

namespace {

// Of a process that starts and, perhaps, finds a GPU. What a plugin itself may take is less, and
// known to its process.
constexpr double kMostSecondsOfLoading = 120;

}  // namespace

IsolatedBackend::IsolatedBackend(const std::vector<std::string>& command)
    : child_(command), hello_(child_.answer(kMostSecondsOfLoading)) {}

// Where it runs, why not here, and what a plugin is, with tabs between.
std::string IsolatedBackend::part_of_hello(int number) const {
  if (hello_.kind != 's') {
    return "";
  }
  std::size_t begin = 0;
  for (int before = 0; before < number; ++before) {
    begin = hello_.text.find('\t', begin) + 1;
  }
  return hello_.text.substr(begin, hello_.text.find('\t', begin) - begin);
}

Answer IsolatedBackend::ask(const std::string& request) {
  if (hello_.kind != 's') {
    return hello_;
  }
  child_.request(request);
  ++asked_;
  return child_.answer(std::nullopt);
}

}  // namespace lora_bench
