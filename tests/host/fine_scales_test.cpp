#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include "device/memory.h"
#include "support/workload_case.h"
#include "verify/mutants.h"
#include "verify/oracle.h"
#include "verify/random_case.h"
#include "verify/step.h"
#include "verify/verify.h"
#include "workload/tensors.h"

using namespace lora_bench;

namespace {

// So long a sum over K that the bound of reals hides what a scale loses in fp16.
Case long_sum(Op op, WeightsScale scale) {
  Case spec = workload_case(24, 3);
  spec.op = op;
  spec.layer.in_features = spec.layer.x_stride = 4112;
  spec.adapters.rank.list = spec.layer.widths = {32};
  spec.layer.y_stride = 32;
  spec.adapters.max_rank = 32;
  spec.skew.kind = spec.prefill_skew.kind = Skew::kUniform;
  spec.weights = {Dtype::kE4m3, scale, {}};
  spec.weights.block = scale == WeightsScale::kBlock ? std::vector<std::int64_t>{128, 128}
                                                     : std::vector<std::int64_t>{};
  spec.activations = {Dtype::kE4m3, ActivationsScale::kToken, 0};
  return spec;
}

Verdict verdict_of(const std::string& mutant, const Problem& problem, Part without = Part::kNone) {
  const std::unique_ptr<Memory> memory = make_host_memory();
  VerifyOptions options;
  options.without = without;
  return verify(problem, *make_mutant(mutant), *memory, options);
}

bool has_eight_bits(const Case& spec) { return spec.weights.dtype.has_value(); }

}  // namespace

TEST_CASE("scales that are rounded to 16 bits show in a fine fill where no other tells them") {
  for (const WeightsScale scale : {WeightsScale::kTensor, WeightsScale::kBlock}) {
    const Problem problem = problem_of(long_sum(Op::kLinear, scale));
    CHECK(verdict_of("none", problem).status == Status::kPassed);
    for (const std::string of : {"weight-scale", "x-scale"}) {
      const std::string mutant = of + "-rounded-to-fp16";
      CAPTURE(mutant);
      CHECK(verdict_of(mutant, problem, Part::kFine).status == Status::kPassed);
      for (const std::string to : {"fp16", "bf16"}) {
        const Verdict verdict = verdict_of(of + "-rounded-to-" + to, problem);
        REQUIRE(verdict.failure);
        CHECK(verdict.failure->level == Level::kExact);
        CHECK(verdict.failure->hypothesis == of + "-misread");
        CHECK(verdict.failure->explanation.ends_with(to));
      }
    }
  }
}

TEST_CASE("a fine fill has scales of 12 bits for one operand, and few numbers") {
  const Problem linear = problem_of(long_sum(Op::kLinear, WeightsScale::kBlock));
  const Problem expand = problem_of(long_sum(Op::kExpand, WeightsScale::kBlock));
  CHECK(fine_fills(linear) == std::vector<Fill>{Fill::kFineX, Fill::kFineA, Fill::kFineB});
  CHECK(fine_fills(expand) == std::vector<Fill>{Fill::kFineH, Fill::kFineB});
  const auto check = [](const Problem& problem, Fill fill) {
    const Tensors tensors = draw_tensors(problem, fill, 1);
    for (const Operand& operand : operands_of(problem)) {
      if (!is_scale(operand.role) || operand.elements == 0) {
        continue;
      }
      const HostTensor& scales = tensors.of(operand);
      std::int64_t as_in_fp16 = 0, numbers = 0;
      for (std::int64_t index = 0; index < scales.elements; ++index) {
        const float scale = load(scales.dtype, scales.data.data(), index);
        numbers += std::isnan(scale) ? 0 : 1;
        as_in_fp16 += scale == rounded_to_bits(scale, kBitsOfFp16) ? 1 : 0;
        CHECK((std::isnan(scale) || scale == rounded_to_bits(scale, 12)));
      }
      CAPTURE(label(operand));
      CHECK(numbers > 0);
      CHECK(as_in_fp16 == (is_fine_of(fill, operand.role) ? 0 : numbers));
    }
  };
  for (const Problem& problem : {linear, expand}) {
    for (const Fill fill : fine_fills(problem)) {
      check(problem, fill);
    }
  }
}

TEST_CASE("sums of a fine fill are exact in fp32, and tell of the scales in most random cases") {
  std::int64_t told = 0, asked = 0;
  for (std::uint64_t index = 0; index < 150; ++index) {
    const Case spec = lora_bench::random_case(5, index);
    const Problem problem = problem_of(spec);
    if (!has_eight_bits(spec) || owned_elements(problem) < 200) {
      continue;
    }
    CAPTURE(spec.id);
    for (const Fill fill : fine_fills(problem)) {
      const Tensors tensors = draw_tensors(problem, fill, 1);
      const reference::Rows rows =
          evaluate_rows(problem, tensors, Numerics{}, sample_rows(problem, 32, 1));
      CHECK(rows.largest_partial <= 0x1p24);
    }
    const Verdict verdict = verdict_of("weight-scale-rounded-to-fp16", problem);
    told += verdict.status == Status::kFailed && verdict.failure->level == Level::kExact ? 1 : 0;
    ++asked;
  }
  CHECK(asked > 10);
  CHECK(10 * told >= 9 * asked);
}
