#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/cublas_backend.h"
#include "ops/cublas_library.h"
#include "support/workload_case.h"

using lora_bench::CublasWorkspace;
using lora_bench::Dtype;
using lora_bench::Op;
using lora_bench::Problem;

namespace {

// Begin and bytes of every part, in the order in which they lie.
std::vector<std::pair<std::int64_t, std::int64_t>> parts(const Problem& problem) {
  const CublasWorkspace workspace = cublas_workspace(problem);
  const bool shrinks = has_shrink(problem.op);
  const bool expands = has_expand(problem.op);
  const bool fp32_h = problem.dtype[lora_bench::Role::kH] == Dtype::kFp32;
  const std::int64_t h = problem.slices() * workspace.rows * workspace.h_stride;
  std::int64_t widest = 0;
  for (const std::int64_t width : problem.widths) {
    widest = std::max(widest, width);
  }
  const bool widens = expands && fp32_h && problem.dtype[lora_bench::Role::kY] != Dtype::kFp32;
  return {{workspace.library, lora_bench::Cublas::kWorkspaceBytes},
          {workspace.x, shrinks && !workspace.x_in_place
                            ? workspace.rows * workspace.x_stride *
                                  size_bytes(problem.dtype[lora_bench::Role::kY])
                            : 0},
          {workspace.h, shrinks || fp32_h ? 4 * h : 0},
          {workspace.narrow_h, expands && !fp32_h ? 2 * h : 0},
          {workspace.wide_b, widens ? 4 * widest * workspace.h_stride : 0},
          {workspace.delta, expands ? 4 * workspace.rows * workspace.columns : 0}};
}

}  // namespace

TEST_CASE(
    "cublas: the parts of the workspace are aligned, hold what they must and do not overlap") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Problem problem = problem_of(random_case(seed));
    const CublasWorkspace workspace = cublas_workspace(problem);
    CAPTURE(seed);
    if (problem.plan.active() == 0) {
      CHECK(workspace.bytes == 0);
      continue;
    }
    std::int64_t end = 0;
    for (const auto& [begin, bytes] : parts(problem)) {
      CHECK(begin % lora_bench::kAlignmentBytes == 0);
      CHECK(begin >= end);
      end = begin + bytes;
    }
    CHECK(workspace.bytes >= end);
    CHECK(workspace.x_stride >= problem.in_features);
    CHECK(workspace.h_stride >= problem.max_rank);
  }
}

TEST_CASE("cublas: only what an op needs is asked for") {
  lora_bench::Case spec = workload_case(5, 3);
  spec.intermediate = Dtype::kBf16;
  spec.op = Op::kShrink;
  const Problem shrink = problem_of(spec);
  CHECK(cublas_workspace(shrink).delta == cublas_workspace(shrink).bytes);
  spec.op = Op::kExpand;
  const Problem expand = problem_of(spec);
  CHECK(cublas_workspace(expand).x == cublas_workspace(expand).narrow_h);
  CHECK(cublas_workspace(expand).wide_b == cublas_workspace(expand).delta);
  // 5 rows of 32 columns in fp32 are 640 bytes, on 256.
  CHECK(cublas_workspace(expand).bytes - cublas_workspace(expand).delta == 768);
}

TEST_CASE("cublas: x stays where it is when its rows lie by adapter") {
  lora_bench::Case spec = workload_case(6, 1);
  spec.skew.kind = lora_bench::Skew::kIdentical;
  Problem problem = problem_of(spec);
  CHECK(cublas_workspace(problem).x_in_place);
  CHECK(cublas_workspace(problem).x_stride == problem.x_stride);
  CHECK(cublas_workspace(problem).x == cublas_workspace(problem).h);
  problem.plan = lora_bench::make_plan(std::vector<std::int32_t>{0, -1, 0, 0, -1, 0}, 1);
  CHECK_FALSE(cublas_workspace(problem).x_in_place);
  problem.plan = lora_bench::make_plan(std::vector<std::int32_t>{0, 0, 0, 0, -1, -1}, 1);
  CHECK(cublas_workspace(problem).x_in_place);
}

TEST_CASE("cublas promises no order, but fp32 where operands are fp32") {
  lora_bench::Case spec = workload_case(5, 3);
  const Problem problem = problem_of(spec);
  CHECK(cublas_numerics(problem).unit_roundoff == 0x1p-23);
  CHECK(cublas_numerics(problem).shrink_depth == 48);
  CHECK(cublas_numerics(problem).expand_depth == 8 + 2);
  CHECK_FALSE(cublas_numerics(problem).batch_invariant);
  spec.dtype = Dtype::kFp32;
  CHECK(cublas_numerics(problem_of(spec)).unit_roundoff == 0x1p-24);
}

TEST_CASE("a machine without cuBLAS has a sentence for it, and the backend cannot be made") {
  const std::string why_not = lora_bench::why_no_cublas();
  if (!lora_bench::why_no_gpu().empty()) {
    CHECK(why_not == lora_bench::why_no_gpu());
  }
  if (!why_not.empty()) {
    CHECK_THROWS((void)lora_bench::make_cublas_backend());
  }
}
