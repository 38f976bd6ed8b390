#include <cstring>
#include <utility>

#include "verify/array_mutants.h"
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

class QuantiseMutant final : public ArrayMutant {
 public:
  explicit QuantiseMutant(const QuantiseFault& fault)
      : ArrayMutant(fault.fault, fault.meaning, lora_bench::name(Op::kQuantise)),
        quantiser_(fault.fault) {}

  [[nodiscard]] const Quantiser* quantiser() const override { return &quantiser_; }

 private:
  FaultyQuantiser quantiser_;
};

const Quantiser* quantiser_of(const Backend& backend) { return backend.quantiser(); }

Verdict proved_codes(const QuantiseStep& step, const Quantiser& quantiser, Memory& memory) {
  return verify_quantise(step, quantiser, memory, true);
}

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
  SelfTestRow row =
      hunt_arrays(fault.fault, steps, make_quantise_mutant, quantiser_of, proved_codes);
  row.named_right = row.hypothesis == fault.fault;
  return row;
}

void try_right_quantisers(const std::vector<TellingQuantise>& steps, SelfTestReport& report) {
  try_right_arrays(steps, quantiser_of, proved_codes, report);
}

}  // namespace lora_bench
