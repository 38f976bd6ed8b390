#include <fmt/format.h>

#include <algorithm>

#include "verify/mutant_hunt.h"
#include "verify/random_case.h"

namespace lora_bench {
namespace {

std::vector<std::unique_ptr<Backend>> correct_host_backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(make_mutant("none"));
  for (const BackendEntry& entry : backend_registry()) {
    if (!entry.why_not_here.empty()) {
      continue;
    }
    std::unique_ptr<Backend> backend = entry.make();
    if (backend->space() == Space::kHost) {
      backends.push_back(std::move(backend));
    }
  }
  return backends;
}

}  // namespace

bool sound(const SelfTestReport& report) {
  return !report.rows.empty() && report.false_alarms == 0 &&
         std::all_of(report.rows.begin(), report.rows.end(), [](const SelfTestRow& row) {
           return row.caught && row.named_right && row.part_needed;
         });
}

SelfTestReport self_test(std::int64_t correct_cases, std::uint64_t seed,
                         const std::function<void(const std::string&)>& progress) {
  SelfTestReport report;
  const std::vector<Case> cases = telling_cases();
  for (const MutantDoc& doc : mutants()) {
    report.rows.push_back(hunt_and_judge(doc, cases));
    const SelfTestRow& row = report.rows.back();
    progress(row.caught ? fmt::format("{}: caught by {}", row.fault, row.level)
                        : fmt::format("{}: NOT CAUGHT", row.fault));
  }
  const std::vector<std::unique_ptr<Backend>> backends = correct_host_backends();
  const auto share = static_cast<std::int64_t>(backends.size());
  for (std::int64_t turn = 0; turn < share; ++turn) {
    const std::int64_t cases_of_backend =
        correct_cases / share + (turn < correct_cases % share ? 1 : 0);
    const Backend& backend = *backends[static_cast<std::size_t>(turn)];
    progress(fmt::format("{}: {} random cases", backend.name(), cases_of_backend));
    try_correct(backend, cases_of_backend, seed, report);
  }
  return report;
}

}  // namespace lora_bench
