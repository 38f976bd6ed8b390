#include "verify/mutant_hunt.h"

#include <exception>
#include <string_view>

#include "verify/random_case.h"

namespace lora_bench {
namespace {

// What a race leaves is not the same from run to run, and so is its name.
constexpr std::string_view kGpuPrefix = "gpu-";

Problem problem_of(const Case& spec) { return make_problem(spec); }

std::unique_ptr<Memory> memory_of(const Backend& backend) {
  return backend.space() == Space::kDevice ? make_device_memory() : make_host_memory();
}

DeviceFacts facts_for(const Backend& backend) {
  return backend.space() == Space::kDevice ? gpu_facts() : cpu_facts();
}

Verdict verdict_of(const Case& spec, const Backend& backend, bool relations, const Prover& prover,
                   Part without = Part::kNone) {
  const std::unique_ptr<Memory> memory = memory_of(backend);
  VerifyOptions options;
  options.relations = relations;
  options.seed = spec.seed;
  options.without = without;
  return prover ? prover(problem_of(spec), backend, *memory, options)
                : verify(problem_of(spec), backend, *memory, options);
}

// "relations: permuted rows" where the level alone says little.
std::string caught_at(const Failure& failure) {
  const std::string level(name(failure.level));
  const bool values = failure.level == Level::kExact || failure.level == Level::kBounded;
  return values ? level : level + ": " + failure.what;
}

}  // namespace

SelfTestRow hunt(const std::string& fault, const std::vector<Case>& cases, Part without,
                 const Stop& stop, const Prover& prover) {
  SelfTestRow row;
  row.fault = fault;
  for (const Case& spec : cases) {
    if (stop()) {
      return row;
    }
    const std::unique_ptr<Backend> mutant = make_mutant(fault);
    if (!mutant->supports(problem_of(spec), facts_for(*mutant)).yes) {
      continue;
    }
    const Verdict verdict = verdict_of(spec, *mutant, true, prover, without);
    if (verdict.failure) {
      row.caught = true;
      row.level = caught_at(*verdict.failure);
      row.hypothesis = verdict.failure->hypothesis;
      row.case_id = spec.id;
      return row;
    }
  }
  return row;
}

SelfTestRow hunt_and_judge(const MutantDoc& doc, const std::vector<Case>& cases, const Stop& stop,
                           const Prover& prover) {
  SelfTestRow row = hunt(doc.fault, cases, Part::kNone, stop, prover);
  const bool any_name =
      doc.hypothesis.empty() && (doc.any_name || doc.fault.starts_with(kGpuPrefix));
  row.named_right = any_name || row.hypothesis == doc.hypothesis;
  row.part_needed =
      doc.alone == Part::kNone || !hunt(doc.fault, cases, doc.alone, stop, prover).caught;
  return row;
}

void try_correct(const Backend& backend, std::int64_t cases, std::uint64_t seed,
                 SelfTestReport& report, const Stop& stop, const Prover& prover) {
  const DeviceFacts here = facts_for(backend);
  for (std::int64_t index = 0; index < cases && !stop(); ++index) {
    const Case spec = random_case(seed, static_cast<std::uint64_t>(index));
    if (!backend.supports(problem_of(spec), here).yes) {
      continue;
    }
    std::string alarm;
    try {
      const Verdict verdict = verdict_of(spec, backend, index % 4 == 0, prover);
      alarm = verdict.failure ? verdict.message : "";
      report.correct_passed += verdict.status == Status::kPassed && verdict.compared > 0 ? 1 : 0;
    } catch (const std::exception& error) {
      alarm = error.what();
    }
    ++report.correct_cases;
    if (!alarm.empty()) {
      ++report.false_alarms;
      report.alarm_messages.push_back(std::string(backend.name()) + ", " + spec.id + ": " + alarm);
    }
  }
}

}  // namespace lora_bench
