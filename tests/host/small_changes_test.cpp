#include "measure/small_changes.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "ops/backends.h"
#include "support/cpu_case.h"
#include "verify/verify.h"
#include "workload/excerpt.h"

using namespace lora_bench;
using namespace lora_bench::test;

namespace {

constexpr std::int64_t kSet = 5;

std::int64_t bytes_that_differ(const std::vector<HostTensor>& left,
                               const std::vector<HostTensor>& right) {
  std::int64_t count = 0;
  for (std::size_t tensor = 0; tensor < left.size(); ++tensor) {
    for (std::size_t at = 0; at < left[tensor].data.size(); ++at) {
      count += left[tensor].data[at] != right[tensor].data[at] ? 1 : 0;
    }
  }
  return count;
}

// Every third with weights of eight bits, and an x or a given h of eight bits where the op takes
// one.
Problem any_problem(std::uint64_t seed) {
  Problem problem = random_problem(seed);
  if (seed % 3 == 0) {
    const std::array<WeightsScale, 3> scales{WeightsScale::kTensor, WeightsScale::kChannel,
                                             WeightsScale::kBlock};
    problem.weights_scale = scales.at(seed / 3 % 3);
    if (problem.weights_scale == WeightsScale::kBlock) {
      problem.block_rows = 4;
      problem.block_columns = 16;
    }
    problem.dtype[Role::kAScale] = problem.dtype[Role::kBScale] = Dtype::kFp32;
    problem.dtype[Role::kA] = problem.dtype[Role::kB] = seed % 2 == 0 ? Dtype::kE4m3 : Dtype::kE5m2;
    if (problem.op == Op::kLinear || problem.op == Op::kShrink || problem.op == Op::kExpand) {
      constexpr std::array kForms{ActivationsScale::kTensor, ActivationsScale::kToken,
                                  ActivationsScale::kBlock};
      problem.activations_scale = kForms.at(seed / 9 % 3);
      const std::int64_t group = problem.op == Op::kExpand ? 3 : 16;
      problem.activations_group = problem.activations_scale == ActivationsScale::kBlock ? group : 0;
      problem.dtype[problem.their_scales()] = Dtype::kFp32;
      problem.dtype[problem.activations()] = seed / 3 % 2 == 0 ? Dtype::kE4m3 : Dtype::kE5m2;
    }
  }
  return problem;
}

// What one change did to rows of a step.
struct Changed {
  std::int64_t wrong = 0;  // elements of the result of before that are wrong now
  std::int64_t bytes_of_a = 0, bytes_of_b = 0, bytes_of_scales = 0, bytes_of_rows = 0;
};

Changed try_out(const SmallChange& change, void (*make)(const SmallChange&, Tensors&)) {
  const Problem& problem = change.problem;
  const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
  const Tensors before = draw_tensors(problem, Fill::kTiming, 1);
  const Excerpt excerpt = excerpt_of(problem, change.rows);
  const HostResult old =
      launch_on_host(*cpu, excerpt.problem, cut_tensors(excerpt, problem, before, change.set));
  Tensors after = before;
  make(change, after);
  const Tensors cut = cut_tensors(excerpt, problem, after, change.set);
  std::vector<std::int64_t> rows(change.rows.size());
  std::iota(rows.begin(), rows.end(), 0);
  const Comparison found =
      compare_output(excerpt.problem, cut, cpu->numerics(problem),
                     (has_expand(problem.op) ? old.y : old.h).data.data(), rows);
  return {found.wrong, bytes_that_differ(before.a, after.a), bytes_that_differ(before.b, after.b),
          bytes_that_differ(before.a_scale, after.a_scale) +
              bytes_that_differ(before.b_scale, after.b_scale) +
              bytes_that_differ({before.x_scale, before.h_scale}, {after.x_scale, after.h_scale}),
          bytes_that_differ({before.x, before.h}, {after.x, after.h})};
}

}  // namespace

TEST_CASE("a small change changes what it says, little of it, and the result of a row") {
  std::int64_t tried = 0;
  std::int64_t scales_tried = 0;
  std::int64_t scales_of_x_tried = 0, scales_of_h_tried = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Problem problem = any_problem(seed);
    SmallChange change{problem, kSet, {}, seed};
    for (const std::int64_t row : owned_rows(problem)) {  // not those of rank 0, bias or not
      if (change.rows.size() < 4) {
        change.rows.push_back(row);
      }
    }
    if (change.rows.empty() || owned_elements(problem) == 0) {
      continue;
    }
    CAPTURE(seed);
    const auto note = [&](const Changed& changed) {
      ++tried;
      CHECK(changed.wrong > 0);
    };
    if (has_shrink(problem.op)) {
      const Changed changed = try_out(change, change_a);
      CHECK(changed.bytes_of_a <= 2 * size_bytes(problem.dtype[Role::kA]));
      CHECK(changed.bytes_of_b + changed.bytes_of_rows == 0);
      note(changed);
    }
    if (has_expand(problem.op)) {
      const Changed changed = try_out(change, change_b);
      CHECK(changed.bytes_of_b <= 2 * size_bytes(problem.dtype[Role::kB]));
      CHECK(changed.bytes_of_a + changed.bytes_of_rows == 0);
      note(changed);
    }
    const auto note_scales = [&](const Changed& changed) {
      ++scales_tried;
      CHECK(changed.bytes_of_scales <= 2 * size_bytes(Dtype::kFp32));
      CHECK(changed.bytes_of_a + changed.bytes_of_b + changed.bytes_of_rows == 0);
      note(changed);
    };
    if (problem.has_scaled_weights() && has_shrink(problem.op)) {
      note_scales(try_out(change, change_a_scale));
    }
    if (problem.has_scaled_weights() && has_expand(problem.op)) {
      note_scales(try_out(change, change_b_scale));
    }
    if (problem.has_scaled_activations()) {
      ++(problem.has_scaled_x() ? scales_of_x_tried : scales_of_h_tried);
      note_scales(try_out(change, change_row_scale));
    }
    const Changed changed = try_out(change, change_rows);
    const std::int64_t of_row = problem.own_inputs() ? problem.slices() : 1;
    CHECK(changed.bytes_of_rows <= of_row * 4 * size_bytes(Dtype::kFp32));
    CHECK(changed.bytes_of_a + changed.bytes_of_b == 0);
    note(changed);
  }
  CHECK(tried > 500);
  CHECK(scales_tried > 50);
  CHECK(scales_of_x_tried > 20);
  CHECK(scales_of_h_tried > 10);
}

TEST_CASE("whatever meets what was changed, an fp16 h stays finite, and its result is another") {
  for (const float scale : {1.0F, 32.0F, 64.0F, 2000.0F, 60000.0F}) {
    for (const std::int64_t k : {2, 16, 512}) {
      CAPTURE(scale);
      CAPTURE(k);
      Problem problem;
      problem.op = Op::kShrink;
      problem.dtype = OperandDtypes(Dtype::kFp16, Dtype::kFp16);
      problem.scale_at = ScaleAt::kShrink;
      problem.tokens = 8;
      problem.in_features = problem.x_stride = k;
      problem.widths = {16};
      problem.y_stride = 16;
      problem.slots = 4;
      problem.max_rank = 8;
      problem.rank = {8, 8, 8, 8};
      problem.scale = {1, scale, scale / 2, -scale};
      const std::vector<std::int32_t> ids{0, 1, 2, 3, 0, 1, 2, 3};
      problem.plan = make_plan(ids, 4);
      CHECK(takes_one_sign(problem) == (scale < 100 || k < 500));
      const std::unique_ptr<Backend> cpu = make_cpu_backend({1, ""});
      for (std::uint64_t secret = 0; secret < 20; ++secret) {
        Tensors tensors = draw_tensors(problem, Fill::kTiming, 1);
        const Tensors drawn = tensors;
        Replaced replaced;
        const SmallChange change{problem, 0, {1, 2, 3, 5}, secret, &replaced};
        const HostResult before = launch_on_host(*cpu, problem, tensors);
        change_a(change, tensors);
        change_rows(change, tensors);
        for (std::int64_t places = 0; places < 4; ++places) {
          Tensors other = tensors;
          Problem turned = other_batch(problem, places, other);
          turned.scale = problem.scale;
          other.scale = tensors.scale;
          const HostResult h = launch_on_host(*cpu, turned, other);
          bool finite = true;
          for (std::int64_t at = 0; at < h.h.elements; ++at) {
            finite = finite && std::isfinite(load(h.h.dtype, h.h.data.data(), at));
          }
          CHECK(finite);
          CHECK(h.h.data != before.h.data);
        }
        put_back(replaced);
        CHECK(tensors.x.data == drawn.x.data);
        CHECK(tensors.a[0].data == drawn.a[0].data);
      }
    }
  }
}
