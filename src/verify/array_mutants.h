#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "ops/backends.h"
#include "verify/mutants.h"
#include "verify/verify.h"

namespace lora_bench {

// A mutant that does one op that is arrays in, arrays out, and no other. A class of its own hands
// out what does that op.
class ArrayMutant : public Backend {
 public:
  ArrayMutant(std::string_view fault, std::string_view meaning, std::string_view op)
      : name_(fmt::format("mutant:{}", fault)),
        summary_(meaning),
        why_not_(fmt::format("a mutant of op {}", op)) {}

  [[nodiscard]] std::string_view name() const final { return name_; }
  [[nodiscard]] std::string_view summary() const final { return summary_; }
  [[nodiscard]] Space space() const final { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const final {
    return {false, why_not_};
  }
  [[nodiscard]] Numerics numerics(const Problem&) const final { return {}; }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const final { return 0; }
  void launch(const Problem&, const Operands&, Stream) const final {}

 private:
  std::string name_, summary_, why_not_;
};

// Sends a mutant, made anew for each, through the steps until one catches it. `made_by(backend)` is
// what it does the op with, `verify(step, maker, memory)` the proof; a step that the mutant does
// not take is left out.
template <typename Telling, typename Make, typename MadeBy, typename Verify>
SelfTestRow hunt_arrays(std::string_view fault, const std::vector<Telling>& steps, Make make_mutant,
                        MadeBy made_by, Verify verify) {
  SelfTestRow row;
  row.fault = fault;
  const std::unique_ptr<Memory> memory = make_host_memory();
  for (const Telling& telling : steps) {
    const std::unique_ptr<Backend> mutant = make_mutant(fault);
    const auto* const maker = made_by(*mutant);
    if (!maker->supports(telling.step.problem, facts_of(Space::kHost)).yes) {
      continue;
    }
    const Verdict verdict = verify(telling.step, *maker, *memory);
    if (verdict.failure) {
      row.caught = true;
      row.level = name(verdict.failure->level);
      row.hypothesis = verdict.failure->hypothesis;
      row.case_id = telling.id;
      break;
    }
  }
  return row;
}

// Every backend of this machine that does the op, over the steps that it takes; a failure is a
// false alarm.
template <typename Telling, typename MadeBy, typename Verify>
void try_right_arrays(const std::vector<Telling>& steps, MadeBy made_by, Verify verify,
                      SelfTestReport& report) {
  for (const BackendEntry& entry : backend_registry()) {
    if (!entry.why_not_here.empty()) {
      continue;
    }
    const std::unique_ptr<Backend> backend = entry.make();
    const auto* const maker = made_by(*backend);
    if (maker == nullptr) {
      continue;
    }
    const std::unique_ptr<Memory> memory =
        backend->space() == Space::kDevice ? make_device_memory() : make_host_memory();
    for (const Telling& telling : steps) {
      if (!maker->supports(telling.step.problem, facts_of(backend->space())).yes) {
        continue;
      }
      const Verdict verdict = verify(telling.step, *maker, *memory);
      ++report.correct_cases;
      report.correct_passed += verdict.status == Status::kPassed ? 1 : 0;
      if (verdict.failure) {
        ++report.false_alarms;
        report.alarm_messages.push_back(
            fmt::format("{}, {}: {}", entry.name, telling.id, verdict.message));
      }
    }
  }
}

}  // namespace lora_bench
