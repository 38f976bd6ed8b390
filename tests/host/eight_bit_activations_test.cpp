#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "measure/ceilings.h"
#include "measure/scales_of_rows.h"
#include "ops/backends.h"
#include "ops/scaled_weights.h"
#include "reference/reference.h"
#include "support/eight_bit_rows.h"
#include "verify/mutants.h"
#include "verify/step.h"
#include "workload/semantics.h"

using namespace lora_bench;

namespace {

// Groups of 20 columns, of 48.
Case eight_bit_x(ActivationsScale scale, Dtype dtype = Dtype::kE4m3) {
  return eight_bit_rows(scale, dtype, 20);
}

// Which scale belongs to an element of x, counted out by hand for a case of eight_bit_x(): 48
// columns have groups of 20, 20 and 8.
std::int64_t scale_by_hand(ActivationsScale scale, std::int64_t row, std::int64_t tokens,
                           std::int64_t k) {
  switch (scale) {
    case ActivationsScale::kTensor:
      return row / tokens;
    case ActivationsScale::kToken:
      return row;
    default:
      return 3 * row + k / 20;
  }
}

}  // namespace

TEST_CASE("each number of x is read with its own scale") {
  for (const Inputs inputs : {Inputs::kShared, Inputs::kPerSlice}) {
    for (const ActivationsScale scale : kScaleForms) {
      Case spec = eight_bit_x(scale);
      spec.inputs = inputs;
      const Problem problem = problem_of(spec);
      const Tensors tensors = draw_tensors(problem, Fill::kTiming, 7);
      Operands operands = no_operands(problem);
      operands.x = tensors.x.data.data();
      operands.x_scale = tensors.x_scale.data.data();
      const std::vector<float> x = numbers_of(tensors.x), scales = numbers_of(tensors.x_scale);
      std::vector<float> row(48);
      std::int64_t wrong = 0;
      for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
        for (std::int64_t token = 0; token < problem.tokens; ++token) {
          read_x(problem, operands, slice, token, 0, 48, row.data());
          const std::int64_t x_row = problem.own_inputs() ? slice * problem.tokens + token : token;
          for (std::int64_t k = 0; k < 48; ++k) {
            const std::int64_t place = scale_by_hand(scale, x_row, problem.tokens, k);
            wrong += row[at(k)] == x[at(x_row * problem.x_stride + k)] * scales[at(place)] ? 0 : 1;
          }
        }
      }
      CAPTURE(name(scale));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the oracle multiplies x with scales of tensors, tokens and groups") {
  // Two rows of x = (1, 2, 4) and (2, 1, 0.5), A of one lane of ones.
  const std::vector<std::uint8_t> x{0x38, 0x40, 0x48, 0x40, 0x38, 0x30}, a{0x38, 0x38, 0x38};
  const std::vector<float> a_scale{2}, x_scale{4, 8, 16, 32};
  const std::vector<std::int32_t> ids{0, 0};
  const std::vector<std::int64_t> rank{1};
  const std::vector<float> scale{1};
  reference::Problem problem;
  problem.expand = false;
  problem.numbers = reference::all_of(reference::Number::kE4m3);
  problem.numbers.h = reference::Number::kFp32;
  problem.tokens = 2;
  problem.slots = problem.max_rank = 1;
  problem.in_features = problem.x_stride = 3;
  problem.widths = {1};
  problem.adapter_of_token = ids;
  problem.rank = rank;
  problem.scale = scale;
  problem.x = x.data();
  problem.a = {a.data()};
  problem.a_scale = {a_scale.data()};
  const auto result = [&](bool one, std::int64_t group) {
    problem.x_scale = {x_scale.data(), one, group};
    return reference::evaluate(problem, {}, std::vector<std::int64_t>{0, 1}).expected;
  };
  CHECK(result(true, 0) == std::vector<double>{2 * 4 * 7, 2 * 4 * 3.5});
  CHECK(result(false, 0) == std::vector<double>{2 * 4 * 7, 2 * 8 * 3.5});
  CHECK(result(false, 2) == std::vector<double>{2 * (4 * 3 + 8 * 4), 2 * (16 * 3 + 32 * 0.5)});
}

TEST_CASE("exact scales of x are powers of two that differ between tokens, groups and slices") {
  for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
    Case spec = eight_bit_x(ActivationsScale::kBlock, dtype);
    spec.inputs = Inputs::kPerSlice;
    const Problem problem = problem_of(spec);
    const Tensors tensors = draw_tensors(problem, Fill::kExact, 3);
    const std::vector<float> scales = numbers_of(tensors.x_scale), x = numbers_of(tensors.x);
    const std::int64_t of_x = problem.tokens * 3;
    REQUIRE(std::ssize(scales) == 2 * of_x);
    int exponent = 0;
    for (std::int64_t index = 0; index < of_x; ++index) {
      CHECK(std::frexp(scales[at(index)], &exponent) == 0.5);
      CHECK(scales[at(index)] != 1);
      CHECK(scales[at(index)] != scales[at(index + of_x)]);
      if (index % 3 < 2) {
        CHECK(scales[at(index)] != scales[at(index + 1)]);
      }
      if (index + 3 < of_x) {
        CHECK(scales[at(index)] != scales[at(index + 3)]);
      }
    }
    // Every second token has subnormal numbers.
    const double least_normal = dtype == Dtype::kE4m3 ? 0x1p-6 : 0x1p-14;
    const auto subnormals = [&](std::int64_t token) {
      const auto row = x.begin() + token * problem.x_stride;
      return std::count_if(row, row + 48, [&](float value) {
        return value != 0 && std::fabs(static_cast<double>(value)) < least_normal;
      });
    };
    CHECK(subnormals(0) > 3);
    CHECK(subnormals(1) == 0);
  }
}

TEST_CASE("rows of x without an adapter have NaN for scales, where a row has scales") {
  Case spec = eight_bit_x(ActivationsScale::kBlock);
  spec.skew.kind = spec.prefill_skew.kind = Skew::kUniform;
  spec.no_adapter = 0.5;
  const Problem problem = problem_of(spec);
  for (const Fill fill : {Fill::kExact, Fill::kBounded, Fill::kUneven}) {
    const std::vector<float> scales = numbers_of(draw_tensors(problem, fill, 3).x_scale);
    std::int64_t without = 0;
    for (std::int64_t token = 0; token < problem.tokens; ++token) {
      const bool none = problem.plan.adapter_of_token[at(token)] == kNoAdapter;
      without += none ? 1 : 0;
      for (std::int64_t group = 0; group < 3; ++group) {
        CHECK(std::isnan(scales[at(3 * token + group)]) == none);
      }
    }
    CHECK(without > 0);
  }
  spec.activations.scale = ActivationsScale::kTensor;
  spec.activations.group = 0;
  const std::vector<float> one =
      numbers_of(draw_tensors(problem_of(spec), Fill::kExact, 3).x_scale);
  CHECK(one.size() == 1);
  CHECK(std::isfinite(one[0]));
}

TEST_CASE("an x of eight bits counts one byte a number, and its scales four") {
  Case spec = eight_bit_x(ActivationsScale::kTensor);
  const auto bytes_of_x = [&](Case of) {
    of.op = Op::kShrink;
    const Work work = count_work(problem_of(of));
    return work.bytes - work.weight_bytes - work.written_bytes;
  };
  const std::int64_t rows = problem_of(spec).tokens;
  CHECK(bytes_of_x(spec) == rows * 48 + 4);
  CHECK(bytes_of_x(eight_bit_x(ActivationsScale::kToken)) == rows * 48 + rows * 4);
  spec = eight_bit_x(ActivationsScale::kBlock);
  CHECK(bytes_of_x(spec) == rows * 48 + rows * 3 * 4);
  spec.inputs = Inputs::kPerSlice;
  CHECK(bytes_of_x(spec) == 2 * (rows * 48 + rows * 3 * 4));
}

TEST_CASE("an x of eight bits is right with every form of scales") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({});
  for (const ActivationsScale scale : kScaleForms) {
    for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
      for (const Op op : {Op::kShrink, Op::kLinear}) {
        for (const Inputs inputs : {Inputs::kShared, Inputs::kPerSlice}) {
          Case spec = eight_bit_x(scale, dtype);
          spec.op = op;
          spec.inputs = inputs;
          const Verdict verdict = verdict_of(*cpu, problem_of(spec), dtype == Dtype::kE4m3);
          CAPTURE(name(scale));
          CAPTURE(verdict.message);
          CHECK(verdict.status == Status::kPassed);
          CHECK(verdict.compared > 0);
        }
      }
    }
  }
}

TEST_CASE("a scale of x that is another's, or is left out, is found") {
  const MisreadsScalesOfRows::Change changes[] = {
      [](std::vector<float>& scales) { std::fill(scales.begin(), scales.end(), 1.0F); },
      [](std::vector<float>& scales) {
        for (float& scale : scales) {
          scale *= scale;
        }
      },
      [](std::vector<float>& scales) { scales[0] *= 1 + 0x1p-6F; },
      [](std::vector<float>& scales) { scales.back() *= 1 + 0x1p-6F; },
      [](std::vector<float>& scales) {
        std::rotate(scales.begin(), scales.begin() + 1, scales.end());
      },
      [](std::vector<float>& scales) { std::fill(scales.begin(), scales.end(), scales[0]); }};
  for (const ActivationsScale scale : kScaleForms) {
    const std::size_t count = scale == ActivationsScale::kTensor ? 4 : std::size(changes);
    for (std::size_t change = 0; change < count; ++change) {
      const MisreadsScalesOfRows backend(changes[change]);
      const Verdict verdict = verdict_of(backend, problem_of(eight_bit_x(scale)));
      CAPTURE(name(scale));
      CAPTURE(change);
      CHECK(verdict.status == Status::kFailed);
    }
  }
}

TEST_CASE("scales of x stay with their rows where rows are chosen") {
  for (const ActivationsScale scale : kScaleForms) {
    Case spec = eight_bit_x(scale);
    spec.inputs = Inputs::kPerSlice;
    const Problem problem = problem_of(spec);
    const Step step{problem, draw_tensors(problem, Fill::kExact, 5)};
    const std::vector<std::int64_t> rows{3, 0};
    const Step chosen = select_rows(step, rows);
    const std::vector<float> all = numbers_of(step.tensors.x_scale),
                             some = numbers_of(chosen.tensors.x_scale);
    CAPTURE(name(scale));
    for (std::int64_t slice = 0; slice < 2; ++slice) {
      for (std::int64_t row = 0; row < 2; ++row) {
        for (std::int64_t k = 0; k < 48; ++k) {
          const std::int64_t from =
              scale_by_hand(scale, slice * problem.tokens + rows[at(row)], problem.tokens, k);
          CHECK(some[at(scale_by_hand(scale, slice * 2 + row, 2, k))] == all[at(from)]);
        }
      }
    }
    const Step second = single_slice(step, 1);
    CHECK(numbers_of(second.tensors.x_scale) ==
          std::vector<float>(all.begin() + std::ssize(all) / 2, all.end()));
  }
}

TEST_CASE("rows that are looked at alone have the scales of their x") {
  for (const ActivationsScale scale : kScaleForms) {
    const Problem whole = problem_of(eight_bit_x(scale));
    const Tensors tensors = draw_tensors(whole, Fill::kTiming, 5);
    Problem problem = whole;
    problem.tokens = problem.slots = 2;
    problem.widths = {8};
    problem.rank = {5, 3};
    problem.max_rank = 5;
    Tensors cut;
    add_scales_of_rows(whole, tensors, {{1, 0, 0, 0, 4}, {2, 0, 1, 0, 2}}, problem, cut);
    const std::vector<float> all = numbers_of(tensors.x_scale), some = numbers_of(cut.x_scale);
    CAPTURE(name(scale));
    CHECK(problem.scales_of_rows().by_token);
    REQUIRE(std::ssize(some) == 2 * problem.scales_of_rows().across);
    for (std::int64_t k = 0; k < 48; ++k) {
      CHECK(some[at(problem.scales_of_rows().at(0, 2, k))] ==
            all[at(scale_by_hand(scale, 4, whole.tokens, k))]);
      CHECK(some[at(problem.scales_of_rows().at(1, 2, k))] ==
            all[at(scale_by_hand(scale, 2, whole.tokens, k))]);
    }
  }
}

TEST_CASE("who misreads an x of eight bits is told how") {
  struct Told {
    const char* mutant;
    const char* what;
  };
  for (const Told& told :
       {Told{"x-scale-forgotten", "x-scale-misread: the scales of x are left out"},
        Told{"x-scale-twice", "x-scale-misread: the scales of x are multiplied in twice"},
        Told{"x-scale-inverted", "x-scale-misread: the scales of x are divided by"},
        Told{"x-scale-of-neighbour", "x-scale-misread: the scales of x are those of the next row"},
        Told{"x-scale-of-first-row", "x-scale-misread: the scales of x are those of the first row"},
        Told{"x-scale-of-first-slice",
             "x-scale-misread: the scales of x are those of the first slice"},
        Told{"x-scale-of-next-group",
             "x-scale-misread: the scales of x are those of the next group of columns"},
        Told{"x-scale-by-place-in-plan",
             "x-scale-misread: the scales of x are read as if they lay in the order of the plan"},
        Told{"x-eight-bits-exchanged", "x-misread: x in e5m2 is read as e4m3"}}) {
    for (const Op op : {Op::kShrink, Op::kLinear}) {
      Case spec = eight_bit_x(ActivationsScale::kBlock, Dtype::kE5m2);
      spec.op = op;
      const bool apart = op == Op::kShrink || std::string_view(told.mutant).ends_with("slice");
      spec.inputs = apart ? Inputs::kPerSlice : Inputs::kShared;
      const Verdict verdict = verdict_of(*make_mutant(told.mutant), problem_of(spec));
      CAPTURE(verdict.message);
      CAPTURE(told.what);
      CHECK(verdict.message.find(told.what) != std::string::npos);
    }
  }
}

TEST_CASE("who reads weights of eight bits alone refuses an x of eight bits, and says so") {
  const Problem problem = problem_of(eight_bit_x(ActivationsScale::kBlock));
  CHECK(semantics_refused(problem, Semantics(Semantic::kScaledWeights)) ==
        "activations.dtype: e4m3, activations.scale: block, activations.group: 20: an x of eight "
        "bits is not read there");
  CHECK(semantics_refused(problem, kAllSemantics).empty());
}
