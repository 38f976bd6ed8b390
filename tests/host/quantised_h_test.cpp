#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ops/backends.h"
#include "ops/operands.h"
#include "ops/scaled_weights.h"
#include "reference/reference.h"
#include "support/eight_bit_rows.h"
#include "verify/mutants.h"

using namespace lora_bench;

namespace {

// A row of x that shrink leaves as it is, since A is the identity, and a B of ones: y is the sum of
// what became of the lanes.
class SumOfLanes {
 public:
  explicit SumOfLanes(std::vector<float> x) : x_(std::move(x)), rank_{std::ssize(x_)} {
    for (std::size_t lane = 0; lane < x_.size(); ++lane) {
      for (std::size_t k = 0; k < x_.size(); ++k) {
        a_.push_back(lane == k ? 1.0F : 0.0F);
      }
    }
    b_.assign(x_.size(), 1.0F);
    problem.numbers = reference::all_of(reference::Number::kFp32);
    problem.add_inputs = false;
    problem.tokens = problem.slots = problem.y_stride = 1;
    problem.in_features = problem.x_stride = problem.max_rank = rank_[0];
    problem.widths = {1};
    problem.adapter_of_token = ids_;
    problem.rank = rank_;
    problem.scale = scale_;
    problem.x = x_.data();
    problem.a = {a_.data()};
    problem.b = {b_.data()};
    problem.y = y_.data();
    problem.quantiser_of_h.rule.least_scale = 1e-9;
    arithmetic.intermediate = reference::Number::kE4m3;
  }
  SumOfLanes(const SumOfLanes&) = delete;
  SumOfLanes& operator=(const SumOfLanes&) = delete;

  struct Sum {
    double value = 0, bound = 0;
  };
  [[nodiscard]] Sum sum(reference::Rounding rounding) const {
    const reference::Rows rows =
        reference::evaluate(problem, arithmetic, std::vector<std::int64_t>{0}, rounding);
    return {rows.expected[0], rows.bound[0]};
  }
  [[nodiscard]] double exact() const { return sum(reference::Rounding::kModelled).value; }

  reference::Problem problem;
  reference::Arithmetic arithmetic;

 private:
  std::vector<float> x_, a_, b_, y_{0}, scale_{1};
  std::vector<std::int32_t> ids_{0};
  std::vector<std::int64_t> rank_;
};

Case quantised_case(ActivationsScale scale, Dtype to = Dtype::kE4m3) {
  Case spec = eight_bit_rows(scale, Dtype::kE4m3, 4);
  spec.intermediate = to;
  return spec;
}

// Quantises h, and says that it keeps it in fp32.
class SaysItKeepsH : public BackendAround {
 public:
  using BackendAround::BackendAround;
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics = BackendAround::numerics(problem);
    numerics.intermediate = Dtype::kFp32;
    return numerics;
  }
};

// Right, and with an h of fp32 that it says it keeps.
class KeepsH final : public SaysItKeepsH {
 public:
  using SaysItKeepsH::SaysItKeepsH;
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    Problem kept = problem;
    kept.h_quantiser.reset();
    BackendAround::launch(kept, operands, stream);
  }
};

}  // namespace

TEST_CASE("the oracle quantises h by its rule, all lanes of a row together or by groups") {
  SumOfLanes lanes({3, 1});
  const double third = 3.0F / 448;  // the scale of both
  CHECK(lanes.exact() == 448 * third + 144 * third);
  lanes.problem.quantiser_of_h.group = 1;
  CHECK(lanes.exact() == 448 * third + 448 * static_cast<double>(1.0F / 448));
  lanes.problem.quantiser_of_h.group = 0;
  lanes.problem.quantiser_of_h.rule.power_of_two = true;
  CHECK(lanes.exact() == 4);
  lanes.problem.quantiser_of_h.rule.power_of_two = false;
  lanes.problem.quantiser_of_h.rule.least_amax = 4480;
  CHECK(lanes.exact() == 10 * (0.3125 + 0.1015625));
  lanes.arithmetic.intermediate = reference::Number::kFp32;  // kept
  CHECK(lanes.exact() == 4);
}

TEST_CASE("an h at a tie may have either code, and any other the one that is nearest") {
  const auto bound_of = [](float lane) {
    return SumOfLanes({448, lane}).sum(reference::Rounding::kBounded).bound;
  };
  // 16 and 18 are neighbours. The scale is 1, and no sum is off by more than a part in a million.
  CHECK(bound_of(17) > 1.99);
  CHECK(bound_of(17) < 2.01);
  for (const float lane : {16.0F, 16.5F, 16.99F, 17.01F, 17.5F}) {
    CHECK(bound_of(lane) < 0.01);
  }
}

TEST_CASE("a largest h near a power of two may have either scale, each with its own codes") {
  // The scale of 448 is 1, of a little more 2. The code of 15 is 15 with the one, 7.5 with the
  // other: a bound that held codes of one against the scale of the other would be hundreds wide.
  SumOfLanes lanes({448, 15});
  lanes.problem.quantiser_of_h.rule.power_of_two = true;
  CHECK(lanes.exact() == 463);
  const SumOfLanes::Sum sum = lanes.sum(reference::Rounding::kBounded);
  CHECK(sum.value == 463);
  CHECK(sum.bound < 1.01);
}

TEST_CASE("cpu quantises h as the case says, and who keeps it is proved by what it declares") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({});
  const KeepsH keeps(*cpu);
  const std::unique_ptr<Memory> memory = make_host_memory();
  for (const ActivationsScale scale : {ActivationsScale::kToken, ActivationsScale::kBlock}) {
    for (const Dtype to : {Dtype::kE4m3, Dtype::kE5m2}) {
      const Problem problem = problem_of(quantised_case(scale, to));
      REQUIRE(problem.h_quantiser);
      CHECK(cpu->numerics(problem).intermediate == to);
      for (const Backend* backend : std::vector<const Backend*>{cpu.get(), &keeps}) {
        const Verdict verdict = verify(problem, *backend, *memory, {});
        CAPTURE(verdict.message);
        CHECK(verdict.status == Status::kPassed);
      }
      const Verdict unsaid = verify(problem, SaysItKeepsH(*cpu), *memory, {});
      REQUIRE(unsaid.failure);
      CHECK(unsaid.failure->explanation == "h is declared to be kept in fp32, but was quantised");
      const Verdict silent = verify(problem, *make_mutant("h-not-quantised"), *memory, {});
      REQUIRE(silent.failure);
      CHECK(silent.failure->hypothesis == "h-misquantised");
    }
  }
}

TEST_CASE("lanes become codes times scales, those of a group by its largest") {
  HiddenQuantiser quantiser;
  quantiser.rule.least_scale = 1e-9F;
  std::vector<float> lanes{3, 1, 0.25F, -0.5F, 0};
  quantise_lanes(quantiser, lanes);
  const float third = 3.0F / 448;
  CHECK(lanes == std::vector<float>{448 * third, 144 * third, 36 * third, -72 * third, 0});
  quantiser.group = 2;
  lanes = {3, 1, 0.25F, -0.5F, 0};
  quantise_lanes(quantiser, lanes);
  const float half = 0.5F / 448;
  CHECK(lanes == std::vector<float>{448 * third, 144 * third, 224 * half, -448 * half, 0 * 1e-9F});
}

TEST_CASE("the halves of a step that quantises h have an h of fp32 and no quantiser") {
  const Problem problem = problem_of(quantised_case(ActivationsScale::kToken));
  CHECK(problem.dtype[Role::kH] == Dtype::kFp32);
  CHECK(problem.kept_h() == Dtype::kE4m3);
  for (const Op op : {Op::kShrink, Op::kExpand}) {
    const Problem half = half_of(problem, op);
    CHECK_FALSE(half.h_quantiser);
    CHECK(half.kept_h() == Dtype::kFp32);
  }
}
