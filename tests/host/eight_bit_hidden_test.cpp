#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "measure/ceilings.h"
#include "measure/scales_of_rows.h"
#include "ops/backends.h"
#include "ops/scaled_weights.h"
#include "reference/reference.h"
#include "support/cpu_case.h"
#include "support/eight_bit_rows.h"
#include "verify/mutants.h"
#include "verify/step.h"
#include "workload/semantics.h"

using namespace lora_bench;

namespace {

// Groups of 4 lanes, of 9.
Case eight_bit_h(ActivationsScale scale, Dtype dtype = Dtype::kE4m3) {
  Case spec = eight_bit_rows(scale, dtype, 4);
  spec.op = Op::kExpand;
  return spec;
}

// Which scale belongs to a lane of h, counted out by hand for a case of eight_bit_h(): 9 lanes have
// groups of 4, 4 and 1, and each slice has its own scales.
std::int64_t scale_by_hand(ActivationsScale scale, std::int64_t row, std::int64_t tokens,
                           std::int64_t lane) {
  switch (scale) {
    case ActivationsScale::kTensor:
      return row / tokens;
    case ActivationsScale::kToken:
      return row;
    default:
      return 3 * row + lane / 4;
  }
}

std::int64_t rank_of(const Problem& problem, std::int64_t token) {
  const std::int32_t slot = problem.plan.adapter_of_token[at(token)];
  return slot < 0 ? 0 : problem.rank[at(slot)];
}

}  // namespace

TEST_CASE("each lane of a given h is read with its own scale") {
  for (const ActivationsScale scale : kScaleForms) {
    const Problem problem = problem_of(eight_bit_h(scale));
    const Tensors tensors = draw_tensors(problem, Fill::kTiming, 7);
    Operands operands = no_operands(problem);
    HostTensor stored = tensors.h;
    operands.h = stored.data.data();
    operands.h_scale = tensors.h_scale.data.data();
    const std::vector<float> h = numbers_of(tensors.h), scales = numbers_of(tensors.h_scale);
    std::vector<float> lanes(9);
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < 2 * problem.tokens; ++row) {
      read_h(problem, operands, {row / problem.tokens, row % problem.tokens, 9}, lanes.data());
      for (std::int64_t lane = 0; lane < 9; ++lane) {
        const std::int64_t place = scale_by_hand(scale, row, problem.tokens, lane);
        wrong += lanes[at(lane)] == h[at(row * 9 + lane)] * scales[at(place)] ? 0 : 1;
      }
    }
    CAPTURE(name(scale));
    CHECK(wrong == 0);
  }
}

TEST_CASE("the oracle multiplies a given h with scales of slices, tokens and groups") {
  // Two slices of two rows of h: (1, 2, 4), (2, 1, 0.5), (4, 4, 4), (1, 1, 1), B of ones.
  const std::vector<std::uint8_t> h{0x38, 0x40, 0x48, 0x40, 0x38, 0x30,
                                    0x48, 0x48, 0x48, 0x38, 0x38, 0x38},
      b{0x38, 0x38, 0x38};
  const std::vector<float> b_scale{2}, h_scale{1, 64, 4, 8, 16, 32, 128, 2};
  const std::vector<std::uint16_t> y(4, 0);
  const std::vector<std::int32_t> ids{0, 0};
  const std::vector<std::int64_t> rank{3};
  const std::vector<float> scale{1};
  reference::Problem problem;
  problem.shrink = problem.add_inputs = false;
  problem.numbers = reference::all_of(reference::Number::kE4m3);
  problem.numbers.y = reference::Number::kBf16;
  problem.tokens = problem.y_stride = 2;
  problem.slots = 1;
  problem.max_rank = 3;
  problem.widths = {1, 1};
  problem.adapter_of_token = ids;
  problem.rank = rank;
  problem.scale = scale;
  problem.h = h.data();
  problem.y = y.data();
  problem.b = {b.data(), b.data()};
  problem.b_scale = {b_scale.data(), b_scale.data()};
  const auto result = [&](bool one, std::int64_t group) {
    problem.h_scale = {h_scale.data(), one, group};
    return reference::evaluate(problem, {}, std::vector<std::int64_t>{0, 1}).expected;
  };
  CHECK(result(true, 0) == std::vector<double>{2 * 7, 2 * 64 * 12, 2 * 3.5, 2 * 64 * 3});
  CHECK(result(false, 0) == std::vector<double>{2 * 7, 2 * 4 * 12, 2 * 64 * 3.5, 2 * 8 * 3});
  CHECK(result(false, 2) == std::vector<double>{2 * (3 + 64 * 4), 2 * (16 * 8 + 32 * 4),
                                                2 * (4 * 3 + 8 * 0.5), 2 * (128 * 2 + 2)});
}

TEST_CASE("the bound has a rounding more where a given h is multiplied with its scale") {
  const std::vector<std::uint8_t> h{0x38, 0x40, 0x48}, b{0x38, 0x38, 0x38};
  const std::vector<float> h_scale{1}, y{0}, scale{1};
  const std::vector<std::int32_t> ids{0};
  const std::vector<std::int64_t> rank{3};
  reference::Problem problem;
  problem.shrink = problem.add_inputs = false;
  problem.numbers = reference::all_of(reference::Number::kE4m3);
  problem.numbers.y = reference::Number::kFp32;
  problem.tokens = problem.y_stride = problem.slots = 1;
  problem.max_rank = 3;
  problem.widths = {1};
  problem.adapter_of_token = ids;
  problem.rank = rank;
  problem.scale = scale;
  problem.h = h.data();
  problem.y = y.data();
  problem.b = {b.data()};
  reference::Arithmetic arithmetic;
  arithmetic.expand_depth = 100;
  const auto bound = [&] {
    return reference::evaluate(problem, arithmetic, std::vector<std::int64_t>{0}).bound[0];
  };
  const double without = bound();
  problem.h_scale = {h_scale.data(), true, 0};
  const double with = bound();
  // h is 7 in all, and a rounding a part in 2^24 of it.
  CHECK(with - without > 0.99 * 7 * 0x1p-24);
  CHECK(with - without < 1.01 * 7 * 0x1p-24);
}

TEST_CASE("two slices of h on scales 1 and 64 are not taken for two on one scale") {
  const Problem problem = problem_of(eight_bit_h(ActivationsScale::kTensor));
  Tensors tensors = draw_tensors(problem, Fill::kExact, 3);
  const std::vector<float> scales{1, 64};
  encode(Dtype::kFp32, scales, tensors.h_scale.data.data());
  const auto wrong_of = [&](const Backend& backend) {
    const test::HostResult result = test::launch_on_host(backend, problem, tensors);
    return compare_output(problem, tensors, backend.numerics(problem), result.y.data.data(),
                          all_rows(problem));
  };
  const Comparison right = wrong_of(*make_cpu_backend({}));
  CHECK(right.wrong == 0);
  CHECK(right.owned == problem.tokens * 32);
  // The columns of the second slice, of which it may leave few as they were.
  const Comparison of_first = wrong_of(*make_mutant("h-scale-of-first-slice"));
  CHECK(of_first.wrong > problem.tokens * 8 / 2);
  CHECK(of_first.wrong <= problem.tokens * 8);
}

TEST_CASE("exact scales of h are powers of two that differ between tokens, groups and slices") {
  for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
    const Problem problem = problem_of(eight_bit_h(ActivationsScale::kBlock, dtype));
    const Tensors tensors = draw_tensors(problem, Fill::kExact, 3);
    const std::vector<float> scales = numbers_of(tensors.h_scale), h = numbers_of(tensors.h);
    const std::int64_t of_slice = problem.tokens * 3;
    REQUIRE(std::ssize(scales) == 2 * of_slice);
    int exponent = 0;
    const auto differ = [&](std::int64_t left, std::int64_t right) {
      return std::isnan(scales[at(left)]) || std::isnan(scales[at(right)]) ||
             scales[at(left)] != scales[at(right)];
    };
    std::int64_t numbers = 0;
    for (std::int64_t index = 0; index < of_slice; ++index) {
      if (!std::isnan(scales[at(index)])) {
        ++numbers;
        CHECK(std::frexp(scales[at(index)], &exponent) == 0.5);
        CHECK(scales[at(index)] != 1);
      }
      CHECK(differ(index, index + of_slice));
      CHECK((index % 3 == 2 || differ(index, index + 1)));
      CHECK((index + 3 >= of_slice || differ(index, index + 3)));
    }
    CHECK(numbers > problem.tokens);
    // Every second row has subnormal numbers.
    const double least_normal = dtype == Dtype::kE4m3 ? 0x1p-6 : 0x1p-14;
    const auto subnormals = [&](std::int64_t token) {
      const auto row = h.begin() + token * 9;
      return std::count_if(row, row + rank_of(problem, token), [&](float value) {
        return value != 0 && std::fabs(static_cast<double>(value)) < least_normal;
      });
    };
    CHECK(subnormals(0) > 0);
    CHECK(subnormals(1) == 0);
  }
}

TEST_CASE("rows of h without an adapter, and groups above its rank, have NaN for scales") {
  Case spec = eight_bit_h(ActivationsScale::kBlock);
  spec.skew.kind = spec.prefill_skew.kind = Skew::kUniform;
  spec.no_adapter = 0.5;
  const Problem problem = problem_of(spec);
  for (const Fill fill : {Fill::kExact, Fill::kBounded, Fill::kUneven}) {
    const Tensors tensors = draw_tensors(problem, fill, 3);
    const std::vector<float> scales = numbers_of(tensors.h_scale), h = numbers_of(tensors.h);
    std::int64_t without = 0, above = 0;
    for (std::int64_t row = 0; row < 2 * problem.tokens; ++row) {
      const std::int64_t rank = rank_of(problem, row % problem.tokens);
      without += rank == 0 ? 1 : 0;
      for (std::int64_t lane = 0; lane < 9; ++lane) {
        const bool none = lane / 4 * 4 >= rank;
        above += none && rank > 0 ? 1 : 0;
        CHECK(std::isnan(scales[at(3 * row + lane / 4)]) == none);
        CHECK(std::isnan(h[at(9 * row + lane)]) == (lane >= rank));
      }
    }
    CHECK(without > 0);
    CHECK(above > 0);
  }
  const std::vector<float> of_slices = numbers_of(
      draw_tensors(problem_of(eight_bit_h(ActivationsScale::kTensor)), Fill::kExact, 3).h_scale);
  REQUIRE(of_slices.size() == 2);
  CHECK(std::isfinite(of_slices[0]));
  CHECK(std::isfinite(of_slices[1]));
  CHECK(of_slices[0] != of_slices[1]);
}

TEST_CASE("an h of eight bits counts one byte a lane, and its scales four") {
  const auto bytes_of_h = [](ActivationsScale scale) {
    const Work work = count_work(problem_of(eight_bit_h(scale)));
    return work.bytes - work.weight_bytes - work.written_bytes - work.updated_bytes;
  };
  const Problem problem = problem_of(eight_bit_h(ActivationsScale::kToken));
  std::int64_t lanes = 0, groups = 0;
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    lanes += rank_of(problem, token);
    groups += (rank_of(problem, token) + 3) / 4;
  }
  CHECK(bytes_of_h(ActivationsScale::kTensor) == 2 * (lanes + 4));
  CHECK(bytes_of_h(ActivationsScale::kToken) == 2 * (lanes + 4 * problem.tokens));
  CHECK(bytes_of_h(ActivationsScale::kBlock) == 2 * (lanes + 4 * groups));
}

TEST_CASE("a given h of eight bits is right with every form of scales") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({});
  for (const ActivationsScale scale : kScaleForms) {
    for (const Dtype dtype : {Dtype::kE4m3, Dtype::kE5m2}) {
      for (const Placing placing : {Placing::kSeparate, Placing::kStacked, Placing::kPacked}) {
        Case spec = eight_bit_h(scale, dtype);
        spec.adapters.placing = placing;
        spec.adapters.bias = dtype == Dtype::kE5m2;
        spec.scale_at = dtype == Dtype::kE5m2 ? ScaleAt::kExpand : ScaleAt::kShrink;
        const Verdict verdict = verdict_of(*cpu, problem_of(spec), dtype == Dtype::kE4m3);
        CAPTURE(name(scale));
        CAPTURE(name(placing));
        CAPTURE(verdict.message);
        CHECK(verdict.status == Status::kPassed);
        CHECK(verdict.compared > 0);
      }
    }
  }
}

TEST_CASE("a scale of h that is another's, or is left out, is found") {
  const MisreadsScalesOfRows::Change changes[] = {
      [](std::vector<float>& scales) { std::fill(scales.begin(), scales.end(), 1.0F); },
      [](std::vector<float>& scales) { std::fill(scales.begin(), scales.end(), scales[0]); },
      [](std::vector<float>& scales) {
        std::rotate(scales.begin(), scales.begin() + 1, scales.end());
      },
      [](std::vector<float>& scales) {
        for (float& scale : scales) {
          scale *= scale;
        }
      },
      [](std::vector<float>& scales) { scales[0] *= 1 + 0x1p-6F; },
      [](std::vector<float>& scales) {
        const auto last = std::find_if(scales.rbegin(), scales.rend(),
                                       [](float scale) { return !std::isnan(scale); });
        *last *= 1 + 0x1p-6F;
      }};
  for (const ActivationsScale scale : kScaleForms) {
    for (std::size_t change = 0; change < std::size(changes); ++change) {
      const MisreadsScalesOfRows backend(changes[change]);
      const Verdict verdict = verdict_of(backend, problem_of(eight_bit_h(scale)));
      CAPTURE(name(scale));
      CAPTURE(change);
      CHECK(verdict.status == Status::kFailed);
    }
  }
}

TEST_CASE("scales of h stay with their rows and slices where some are chosen") {
  for (const ActivationsScale scale : kScaleForms) {
    const Problem problem = problem_of(eight_bit_h(scale));
    const Step step{problem, draw_tensors(problem, Fill::kTiming, 5)};
    const std::vector<std::int64_t> rows{3, 0};
    const Step chosen = select_rows(step, rows);
    const std::vector<float> all = numbers_of(step.tensors.h_scale),
                             some = numbers_of(chosen.tensors.h_scale);
    CAPTURE(name(scale));
    for (std::int64_t slice = 0; slice < 2; ++slice) {
      for (std::int64_t row = 0; row < 2; ++row) {
        for (std::int64_t lane = 0; lane < 9; ++lane) {
          const std::int64_t from =
              scale_by_hand(scale, slice * problem.tokens + rows[at(row)], problem.tokens, lane);
          CHECK(some[at(scale_by_hand(scale, slice * 2 + row, 2, lane))] == all[at(from)]);
        }
      }
    }
    const Step second = single_slice(step, 1);
    CHECK(numbers_of(second.tensors.h_scale) ==
          std::vector<float>(all.begin() + std::ssize(all) / 2, all.end()));
  }
}

TEST_CASE("rows that are looked at alone have the scales of their h") {
  for (const ActivationsScale scale : kScaleForms) {
    const Problem whole = problem_of(eight_bit_h(scale));
    const Tensors tensors = draw_tensors(whole, Fill::kTiming, 5);
    Problem problem = whole;
    problem.tokens = problem.slots = 2;
    problem.widths = {8};
    problem.rank = {5, 3};
    problem.max_rank = 5;
    Tensors cut;
    add_scales_of_rows(whole, tensors, {{1, 0, 0, 0, 4}, {2, 0, 1, 0, 2}}, problem, cut);
    const std::vector<float> all = numbers_of(tensors.h_scale), some = numbers_of(cut.h_scale);
    CAPTURE(name(scale));
    const ScalesOfRows scales = problem.scales_of_rows();
    CHECK(scales.by_token);
    REQUIRE(std::ssize(some) == 2 * scales.across);
    for (std::int64_t lane = 0; lane < 5; ++lane) {
      CHECK(some[at(scales.at(0, 2, lane))] ==
            all[at(scale_by_hand(scale, 4, whole.tokens, lane))]);
      CHECK(some[at(scales.at(1, 2, lane))] ==
            all[at(scale_by_hand(scale, whole.tokens + 2, whole.tokens, lane))]);
    }
  }
}

TEST_CASE("who misreads a given h of eight bits is told how") {
  struct Told {
    const char* mutant;
    const char* what;
  };
  for (const Told& told :
       {Told{"h-scale-forgotten", "h-scale-misread: the scales of h are left out"},
        Told{"h-scale-twice", "h-scale-misread: the scales of h are multiplied in twice"},
        Told{"h-scale-inverted", "h-scale-misread: the scales of h are divided by"},
        Told{"h-scale-of-neighbour", "h-scale-misread: the scales of h are those of the next row"},
        Told{"h-scale-of-first-row", "h-scale-misread: the scales of h are those of the first row"},
        Told{"h-scale-of-first-slice",
             "h-scale-misread: the scales of h are those of the first slice"},
        Told{"h-scale-of-next-group",
             "h-scale-misread: the scales of h are those of the next group of columns"},
        Told{"h-scale-by-place-in-plan",
             "h-scale-misread: the scales of h are read as if they lay in the order of the plan"},
        Told{"h-scale-rounded-to-fp16",
             "h-scale-misread: the scales of h are rounded to the 11 bits of fp16"},
        Told{"h-scale-rounded-to-bf16",
             "h-scale-misread: the scales of h are rounded to the 8 bits of bf16"},
        Told{"h-eight-bits-exchanged", "h-misread: h in e5m2 is read as e4m3"},
        Told{"h-eight-bits-flush-subnormals",
             "h-misread: subnormal numbers of h in e5m2 are taken as 0"}}) {
    Case spec = eight_bit_h(ActivationsScale::kBlock, Dtype::kE5m2);
    spec.adapters.rank.list = {9};  // no group is of NaN
    const Verdict verdict = verdict_of(*make_mutant(told.mutant), problem_of(spec));
    CAPTURE(verdict.message);
    CAPTURE(told.what);
    CHECK(verdict.message.find(told.what) != std::string::npos);
  }
}

TEST_CASE("who reads an x of eight bits alone refuses an h of eight bits, and says so") {
  const Problem problem = problem_of(eight_bit_h(ActivationsScale::kBlock));
  CHECK(semantics_refused(problem,
                          Semantics(Semantic::kScaledWeights, Semantic::kScaledActivations)) ==
        "activations.dtype: e4m3, activations.scale: block, activations.group: 4: an h of eight "
        "bits is not read there");
  CHECK(semantics_refused(problem, kAllSemantics).empty());
}

TEST_CASE("the second half of a linear op with an x of eight bits has an h without scales") {
  Problem problem = problem_of(eight_bit_rows(ActivationsScale::kBlock, Dtype::kE4m3, 20));
  CHECK(half_of(problem, Op::kShrink).has_scaled_x());
  const Problem expand = half_of(problem, Op::kExpand);
  CHECK(!expand.has_scaled_h());
  CHECK(expand.dtype[Role::kH] == Dtype::kFp32);
}
