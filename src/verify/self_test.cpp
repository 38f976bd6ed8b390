#include <fmt/format.h>

#include <algorithm>

#include "verify/mutant_hunt.h"
#include "verify/random_case.h"

namespace lora_bench {
namespace {

std::vector<std::unique_ptr<Backend>> correct_backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const char* fault : {"none", "gpu-none"}) {
    if (why_no_mutant(fault).empty()) {
      backends.push_back(make_mutant(fault));
    }
  }
  for (const BackendEntry& entry : backend_registry()) {
    if (entry.why_not_here.empty()) {
      backends.push_back(entry.make());
    }
  }
  return backends;
}

void try_mutants(const std::vector<MutantDoc>& docs, SelfTestReport& report,
                 const ProgressLine& progress, const Stop& stop) {
  const std::vector<Case> cases = telling_cases();
  for (const MutantDoc& doc : docs) {
    const std::string why_not = why_no_mutant(doc.fault);
    if (!why_not.empty()) {
      ++report.skipped;
      report.why_skipped = why_not;
      continue;
    }
    const SelfTestRow row = hunt_and_judge(doc, cases, stop);
    if (stop()) {
      return;
    }
    report.rows.push_back(row);
    progress(row.caught ? fmt::format("{}: caught by {}", row.fault, row.level)
                        : fmt::format("{}: NOT CAUGHT", row.fault));
  }
}

void try_layer_faults(SelfTestReport& report, const ProgressLine& progress, const Stop& stop) {
  const std::vector<TellingLayer> layers = telling_layers();
  for (const LayerFaultDoc& doc : layer_faults()) {
    const SelfTestRow row = hunt_layer(doc, layers, stop);
    if (stop()) {
      return;
    }
    report.rows.push_back(row);
    progress(row.caught ? fmt::format("{}: caught by {}", row.fault, row.level)
                        : fmt::format("{}: NOT CAUGHT", row.fault));
  }
}

}  // namespace

bool sound(const SelfTestReport& report) {
  return !report.rows.empty() && report.false_alarms == 0 &&
         10 * report.correct_passed >= 9 * report.correct_cases &&
         std::all_of(report.rows.begin(), report.rows.end(), [](const SelfTestRow& row) {
           return row.caught && row.named_right && row.part_needed;
         });
}

SelfTestReport self_test(std::int64_t correct_cases, std::uint64_t seed,
                         const std::function<void(const std::string&)>& progress,
                         const Stop& stop) {
  SelfTestReport report;
  try_mutants(mutants(), report, progress, stop);
  try_mutants(gpu_mutants(), report, progress, stop);
  try_layer_faults(report, progress, stop);
  try_right_layers(telling_layers(), report, stop);
  const std::vector<std::unique_ptr<Backend>> backends = correct_backends();
  const auto share = static_cast<std::int64_t>(backends.size());
  for (std::int64_t turn = 0; turn < share && !stop(); ++turn) {
    const std::int64_t cases_of_backend =
        correct_cases / share + (turn < correct_cases % share ? 1 : 0);
    const Backend& backend = *backends[static_cast<std::size_t>(turn)];
    progress(fmt::format("{}: {} random cases", backend.name(), cases_of_backend));
    try_correct(backend, cases_of_backend, seed, report, stop);
  }
  report.interrupted = stop();
  return report;
}

}  // namespace lora_bench
