#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "ops/backends.h"
#include "verify/quantise_proof.h"

namespace lora_bench {
namespace {

class FaultyQuantiser final : public Quantiser {
 public:
  explicit FaultyQuantiser(std::string_view fault) : fault_(fault) {}

  [[nodiscard]] Support supports(const QuantiseProblem&, const DeviceFacts&) const override {
    return {};
  }
  void launch(const QuantiseProblem& problem, const ArrayOperands& operands,
              Stream) const override {
    const auto copied = [](const ArrayShapes& shapes, const auto& addresses) {
      QuantiseArrays arrays;
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const auto* const from = static_cast<const std::byte*>(addresses[i]);
        arrays.emplace_back(from, from + shapes[i].bytes());
      }
      return arrays;
    };
    if (!(problem == before_)) {
      earlier_.clear();
    }
    QuantiseArrays inputs = copied(inputs_of(problem), operands.inputs);
    const QuantiseArrays before = copied(outputs_of(problem), operands.outputs);
    const QuantiseArrays made = quantised_with(fault_, problem, inputs, before, earlier_);
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (!made[i].empty()) {
        std::memcpy(operands.outputs[i], made[i].data(), made[i].size());
      }
    }
    before_ = problem;
    earlier_ = std::move(inputs);
  }

 private:
  std::string_view fault_;
  mutable QuantiseProblem before_;  // of the launch before, as its inputs
  mutable QuantiseArrays earlier_;
};

// Quantises alone.
class QuantiseMutant final : public Backend {
 public:
  explicit QuantiseMutant(const QuantiseFault& fault)
      : name_(fmt::format("mutant:{}", fault.fault)),
        summary_(fault.meaning),
        quantiser_(fault.fault) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view summary() const override { return summary_; }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override {
    return {false, "a mutant of op quantise"};
  }
  [[nodiscard]] Numerics numerics(const Problem&) const override { return {}; }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }
  void launch(const Problem&, const Operands&, Stream) const override {}
  [[nodiscard]] const Quantiser* quantiser() const override { return &quantiser_; }

 private:
  std::string name_, summary_;
  FaultyQuantiser quantiser_;
};

}  // namespace

std::unique_ptr<Backend> make_quantise_mutant(std::string_view fault) {
  for (const QuantiseFault& known : quantise_faults()) {
    if (known.fault == fault) {
      return std::make_unique<QuantiseMutant>(known);
    }
  }
  return nullptr;
}

std::vector<TellingQuantise> telling_quantise() {
  std::vector<TellingQuantise> steps;
  const auto add = [&](const char* id, auto change) {
    QuantiseProblem problem;
    problem.rows = 13;
    problem.columns = problem.stride = 300;
    change(problem);
    ScalesOfRows& scales = problem.scales;
    scales.columns = scales.columns == 1 ? problem.columns : scales.columns;
    scales.across = (problem.columns + scales.columns - 1) / scales.columns;
    scales.rows = scales.by_token ? problem.rows : 1;
    problem.least_scale = static_cast<float>(1 / (512 * largest_finite(problem.to)));
    steps.push_back({id, {problem, 1}});
  };
  const auto by_token = [](QuantiseProblem& problem) { problem.scales.by_token = true; };
  add("token", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.stride = 320;
  });
  add("block", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.scales.columns = 128;
  });
  add("tensor", [](QuantiseProblem& problem) { problem.stride = 320; });
  add("token-multiplied", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.convert = Convert::kMultiply;
  });
  add("block-power-of-two", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.scales.columns = 64;
    problem.power_of_two = true;
  });
  add("token-power-of-two-fp32", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.from = Dtype::kFp32;
    problem.rows = 40;
    problem.power_of_two = true;
  });
  add("least-amax", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.rows = 40;
    problem.least_amax = 0x1p-8F;
  });
  add("given", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.scales_given = true;
    problem.from = Dtype::kFp32;
  });
  add("given-multiplied-e5m2", [&](QuantiseProblem& problem) {
    by_token(problem);
    problem.scales_given = true;
    problem.to = Dtype::kE5m2;
    problem.from = Dtype::kFp16;
    problem.convert = Convert::kMultiply;
  });
  return steps;
}

SelfTestRow hunt_quantise(const QuantiseFault& fault, const std::vector<TellingQuantise>& steps) {
  SelfTestRow row;
  row.fault = fault.fault;
  const std::unique_ptr<Memory> memory = make_host_memory();
  for (const TellingQuantise& telling : steps) {
    const std::unique_ptr<Backend> mutant = make_quantise_mutant(fault.fault);
    const Verdict verdict = verify_quantise(telling.step, *mutant->quantiser(), *memory, true);
    if (verdict.failure) {
      row.caught = true;
      row.level = name(verdict.failure->level);
      row.hypothesis = verdict.failure->hypothesis;
      row.case_id = telling.id;
      break;
    }
  }
  row.named_right = row.hypothesis == fault.fault;
  return row;
}

void try_right_quantisers(const std::vector<TellingQuantise>& steps, SelfTestReport& report) {
  for (const BackendEntry& entry : backend_registry()) {
    if (!entry.why_not_here.empty()) {
      continue;
    }
    const std::unique_ptr<Backend> backend = entry.make();
    const Quantiser* quantiser = backend->quantiser();
    if (quantiser == nullptr) {
      continue;
    }
    const std::unique_ptr<Memory> memory =
        backend->space() == Space::kDevice ? make_device_memory() : make_host_memory();
    for (const TellingQuantise& telling : steps) {
      const Verdict verdict = verify_quantise(telling.step, *quantiser, *memory, true);
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
