#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "device/memory.h"
#include "measure/ceilings.h"
#include "ops/backends.h"
#include "ops/scaled_weights.h"
#include "reference/reference.h"
#include "support/plain_backend.h"
#include "support/workload_case.h"
#include "verify/mutants.h"
#include "verify/oracle.h"
#include "verify/verify.h"
#include "workload/excerpt.h"
#include "workload/tensors.h"

using namespace lora_bench;

namespace {

Case eight_bits(WeightsScale scale, Dtype dtype = Dtype::kE4m3) {
  Case spec = workload_case(6, 3);
  spec.adapters.rank.list = {8, 5, 3};
  spec.adapters.max_rank = 9;
  spec.skew.kind = spec.prefill_skew.kind = Skew::kDistinct;
  spec.weights.dtype = dtype;
  spec.weights.scale = scale;
  if (scale == WeightsScale::kBlock) {
    spec.weights.block = {4, 32};
  }
  return spec;
}

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::vector<float> numbers_of(const HostTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  decode(tensor.dtype, tensor.data.data(), values);
  return values;
}

// Which of the scales of a slot belongs to a number, counted out by hand for a case of
// eight_bits().
std::int64_t scale_by_hand(WeightsScale scale, std::int64_t row, std::int64_t column,
                           std::int64_t columns) {
  switch (scale) {
    case WeightsScale::kTensor:
      return 0;
    case WeightsScale::kChannel:
      return row;
    default:
      return row / 4 * ((columns + 31) / 32) + column / 32;
  }
}

// A right backend that is handed other scales than there are.
class MisreadsScales final : public PlainBackend {
 public:
  using Change = std::function<void(std::vector<float>&)>;
  MisreadsScales(Role role, Change change) : role_(role), change_(std::move(change)) {}

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    const Operand operand = operand_of(problem, role_, 0);
    Operands misread = operands;
    auto& addresses = role_ == Role::kAScale ? misread.a_scale : misread.b_scale;
    const auto* before = static_cast<const float*>(addresses[0]);
    std::vector<float> scales(before, before + operand.elements);
    change_(scales);
    addresses[0] = scales.data();
    right_->launch(problem, misread, stream);
  }

 private:
  Role role_;
  Change change_;
  std::unique_ptr<Backend> right_ = make_mutant("none");
};

Verdict verdict_of(const Backend& backend, const Problem& problem) {
  const std::unique_ptr<Memory> memory = make_host_memory();
  return verify(problem, backend, *memory, {.relations = false});
}

}  // namespace

TEST_CASE("each number of A and B is read with its own scale") {
  for (const WeightsScale scale :
       {WeightsScale::kTensor, WeightsScale::kChannel, WeightsScale::kBlock}) {
    const Problem problem = problem_of(eight_bits(scale));
    const Tensors tensors = draw_tensors(problem, Fill::kBounded, 7);
    Operands operands = no_operands(problem);
    for (const Operand& operand : operands_of(problem)) {
      operands.point(operand, const_cast<std::byte*>(tensors.of(operand).data.data()));
    }
    const std::vector<float> a = numbers_of(tensors.a[0]), scales = numbers_of(tensors.a_scale[0]);
    const std::vector<float> b = numbers_of(tensors.b[1]), of_b = numbers_of(tensors.b_scale[1]);
    const std::int64_t scales_of_slot = std::ssize(scales) / 3, of_b_slot = std::ssize(of_b) / 3;
    std::vector<float> row(48);
    std::int64_t wrong = 0;
    for (std::int64_t lane = 0; lane < 5; ++lane) {
      read_weights(problem, operands, {Role::kA, 0, 1, 5, lane}, 0, 48, row.data());
      for (std::int64_t k = 0; k < 48; ++k) {
        const std::int64_t place = scales_of_slot + scale_by_hand(scale, lane, k, 48);
        wrong += row[at(k)] == a[at((9 + lane) * 48 + k)] * scales[at(place)] ? 0 : 1;
      }
    }
    for (std::int64_t output = 0; output < 8; ++output) {
      read_weights(problem, operands, {Role::kB, 1, 2, 3, output}, 0, 3, row.data());
      for (std::int64_t lane = 0; lane < 3; ++lane) {
        const std::int64_t place = 2 * of_b_slot + scale_by_hand(scale, output, lane, 9);
        wrong += row[at(lane)] == b[at((16 + output) * 9 + lane)] * of_b[at(place)] ? 0 : 1;
      }
    }
    CAPTURE(name(scale));
    CHECK(wrong == 0);
  }
}

TEST_CASE("the oracle multiplies with scales of tensors, channels and blocks") {
  // One row of x = (1, 2, 4), A of two lanes, B of one output; scales of blocks of 1 x 2.
  const std::vector<float> x{1, 2, 4}, y{0};
  const std::vector<std::uint8_t> a{0x38, 0x40, 0x38, 0x30, 0x38, 0xb8};  // 1 2 1, 0.5 1 -1
  const std::vector<std::uint8_t> b{0x40, 0x38};                          // 2 1
  const std::vector<float> a_scale{2, 8, 4, 16}, b_scale{0.5, 32, 1, 1};
  const std::vector<std::int32_t> ids{0};
  const std::vector<std::int64_t> rank{2};
  const std::vector<float> scale{1};
  reference::Problem problem;
  problem.numbers = reference::all_of(reference::Number::kFp32);
  problem.numbers.a = problem.numbers.b = reference::Number::kE4m3;
  problem.tokens = problem.slots = 1;
  problem.in_features = problem.x_stride = 3;
  problem.max_rank = 2;
  problem.widths = {1};
  problem.y_stride = 1;
  problem.adapter_of_token = ids;
  problem.rank = rank;
  problem.scale = scale;
  problem.x = x.data();
  problem.y = y.data();
  problem.a = {a.data()};
  problem.b = {b.data()};
  problem.a_scale = {a_scale.data()};
  problem.b_scale = {b_scale.data()};
  const auto result = [&](std::int64_t rows, std::int64_t columns) {
    problem.block_rows = rows;
    problem.block_columns = columns;
    return reference::evaluate(problem, {}, std::vector<std::int64_t>{0}).expected[0];
  };
  // h by blocks: (1 + 4) 2 + 4 8 and (0.5 + 2) 4 - 4 16; B has one block of both lanes.
  CHECK(result(1, 2) == 0.5 * (2 * 42 + 1 * -54));
  // By channel: 9 2 and -1.5 8, times 0.5.
  CHECK(result(1, 0) == 0.5 * (2 * 18 + 1 * -12));
  CHECK(result(0, 0) == 0.5 * (2 * 18 + 1 * -3));
  // Lanes apart: B has a scale for each; A by elements of K.
  CHECK(result(0, 1) == 2 * 0.5 * (2 + 2 * 16 + 16) + 32 * (0.5 * 2 + 2 * 8 - 4 * 4));
}

TEST_CASE("exact scales are powers of two that differ from their neighbours and from 1") {
  for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
    const Problem problem = problem_of(eight_bits(WeightsScale::kChannel, dtype));
    const Tensors tensors = draw_tensors(problem, Fill::kExact, 3);
    const std::vector<float> scales = numbers_of(tensors.a_scale[0]);
    int exponent = 0;
    for (std::size_t lane = 0; lane + 1 < 8; ++lane) {
      CHECK(std::frexp(scales[lane], &exponent) == 0.5);
      CHECK(scales[lane] != scales[lane + 1]);
      CHECK(scales[lane] != 1);
    }
    CHECK(std::isnan(scales[8]));  // no lane of an adapter of rank 8
    CHECK(scales[0] != numbers_of(tensors.a_scale[1])[0]);
    // Slot 1 holds subnormal numbers in A, slot 0 in B.
    const double least_normal = dtype == Dtype::kE4m3 ? 0x1p-6 : 0x1p-14;
    const auto subnormal = [&](float value) {
      return value != 0 && std::fabs(static_cast<double>(value)) < least_normal;
    };
    const std::vector<float> a = numbers_of(tensors.a[0]), b = numbers_of(tensors.b[0]);
    CHECK(std::count_if(a.begin() + 9 * 48, a.begin() + 14 * 48, subnormal) > 10);
    CHECK(std::count_if(a.begin(), a.begin() + 8 * 48, subnormal) == 0);
    CHECK(std::count_if(b.begin(), b.begin() + 24 * 9, subnormal) > 10);
  }
}

TEST_CASE("weights of eight bits count one byte each, and their scales four") {
  Case spec = eight_bits(WeightsScale::kBlock);
  spec.adapters.slots = 1;
  spec.adapters.rank.list = {5};
  // Two slices of K = 48 and N = 24 and 8; blocks of 4 x 32: of A two rows of two, of B 6 and 2.
  const std::int64_t numbers = 5 * (2 * 48 + 24 + 8);
  CHECK(count_work(problem_of(spec)).weight_bytes == numbers + 4 * (2 * 2 * 2 + 6 + 2));
  spec.weights.scale = WeightsScale::kChannel;
  spec.weights.block.clear();
  CHECK(count_work(problem_of(spec)).weight_bytes == numbers + 4 * (2 * 5 + 24 + 8));
  spec.weights.scale = WeightsScale::kTensor;
  CHECK(count_work(problem_of(spec)).weight_bytes == numbers + 4 * (2 + 2));
  spec.op = Op::kShrink;
  CHECK(count_work(problem_of(spec)).weight_bytes == 5 * 2 * 48 + 4 * 2);
}

TEST_CASE("weights of eight bits are right with every form of scales") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({});
  for (const WeightsScale scale :
       {WeightsScale::kTensor, WeightsScale::kChannel, WeightsScale::kBlock}) {
    for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
      for (const Op op : {Op::kShrink, Op::kExpand, Op::kLinear}) {
        Case spec = eight_bits(scale, dtype);
        spec.op = op;
        const Verdict verdict = verdict_of(*cpu, problem_of(spec));
        CAPTURE(verdict.message);
        CHECK(verdict.status == Status::kPassed);
        CHECK(verdict.compared > 0);
      }
    }
  }
}

TEST_CASE("a scale that is another's, or is left out, is found") {
  const MisreadsScales::Change changes[] = {
      [](std::vector<float>& scales) {
        std::rotate(scales.begin(), scales.begin() + 1, scales.end());
      },
      [](std::vector<float>& scales) { std::fill(scales.begin(), scales.end(), 1.0F); },
      [](std::vector<float>& scales) {
        for (float& scale : scales) {
          scale *= scale;
        }
      },
      [](std::vector<float>& scales) { scales[0] *= 1 + 0x1p-6F; }};
  for (const WeightsScale scale :
       {WeightsScale::kTensor, WeightsScale::kChannel, WeightsScale::kBlock}) {
    for (const Role role : {Role::kAScale, Role::kBScale}) {
      for (std::size_t change = 0; change < std::size(changes); ++change) {
        const MisreadsScales backend(role, changes[change]);
        const Verdict verdict = verdict_of(backend, problem_of(eight_bits(scale)));
        CAPTURE(name(scale));
        CAPTURE(name(role));
        CAPTURE(change);
        CHECK(verdict.status == Status::kFailed);
      }
    }
  }
}

TEST_CASE("another set of operands turns numbers and scales alike in a proof and in memory") {
  const Problem problem = problem_of(eight_bits(WeightsScale::kChannel));
  const Tensors tensors = draw_tensors(problem, Fill::kTiming, 5);
  const Excerpt excerpt = excerpt_of(problem, {0, 1});
  const Tensors cut = cut_tensors(excerpt, problem, tensors, 3);
  CHECK(cut.a_scale[0].elements == 2 * 9);
  const Weights weights{problem, Role::kAScale, tensors.a_scale[0]};
  for (std::int64_t lane = 0; lane < 9; ++lane) {
    const std::int64_t drawn = drawn_element(weights, excerpt.slots[0], 3, lane);
    CHECK(numbers_of(cut.a_scale[0])[at(lane)] == numbers_of(tensors.a_scale[0])[at(drawn)]);
  }
}
