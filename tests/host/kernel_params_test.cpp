#include <doctest/doctest.h>

#include "core/error.h"
#include "ops/backends.h"
#include "ops/kernel_params.h"
#include "support/host_run.h"
#include "support/workload_case.h"

using lora_bench::Dtype;
using lora_bench::Problem;
using lora_bench::ScaleAt;

namespace {

Problem two_slices() {
  lora_bench::Case spec = workload_case(5, 3);
  spec.layer.offset_start = 2;
  spec.layer.y_stride = 40;
  spec.adapters.bias = true;
  return problem_of(spec);
}

}  // namespace

TEST_CASE("kernel parameters carry every size and address of the problem") {
  const Problem problem = two_slices();
  const auto memory = lora_bench::make_host_memory();
  const LoadedProblem loaded(problem, draw_tensors(problem, lora_bench::Fill::kTiming, 1), *memory);
  const auto shrink = shrink_params(problem, loaded.operands);
  CHECK(shrink.x == loaded.operands.x);
  CHECK(shrink.a[1] == loaded.operands.a[1]);
  CHECK(shrink.a[2] == nullptr);
  CHECK(shrink.h == loaded.operands.h);
  CHECK(shrink.tokens == 5);
  CHECK(shrink.in_features == 48);
  CHECK(shrink.x_stride == 48);
  CHECK(shrink.max_rank == 8);
  CHECK(shrink.slices == 2);
  const auto expand = expand_params(problem, loaded.operands);
  CHECK(expand.h == loaded.operands.h);
  CHECK(expand.b[0] == loaded.operands.b[0]);
  CHECK(expand.bias[1] == loaded.operands.bias[1]);
  CHECK(expand.y == loaded.operands.y);
  CHECK(expand.rank == loaded.operands.rank);
  CHECK(expand.adapter_of_token == loaded.operands.adapter_of_token);
  CHECK(expand.width[0] == 24);
  CHECK(expand.width[1] == 8);
  CHECK(expand.columns == 32);
  CHECK(expand.first_column == 2);
  CHECK(expand.y_stride == 40);
  CHECK(expand.add_inputs);
}

TEST_CASE("the scale reaches exactly the kernel that applies it") {
  Problem problem = two_slices();
  const auto memory = lora_bench::make_host_memory();
  const LoadedProblem loaded(problem, draw_tensors(problem, lora_bench::Fill::kTiming, 1), *memory);
  for (const ScaleAt at : {ScaleAt::kShrink, ScaleAt::kExpand}) {
    problem.scale_at = at;
    CHECK((shrink_params(problem, loaded.operands).scale != nullptr) == (at == ScaleAt::kShrink));
    CHECK((expand_params(problem, loaded.operands).scale != nullptr) == (at == ScaleAt::kExpand));
  }
}

TEST_CASE("kernels refuse what they cannot do, in a sentence") {
  Problem problem = two_slices();
  CHECK(kernels_take(problem).yes);
  problem.dtype[lora_bench::Role::kH] = Dtype::kFp16;
  CHECK(kernels_take(problem).why_not.find("fp16 with bf16") != std::string::npos);
  problem.dtype[lora_bench::Role::kH] = Dtype::kBf16;
  CHECK(kernels_take(problem).yes);
  problem.dtype = lora_bench::OperandDtypes(Dtype::kE4m3, problem.dtype[lora_bench::Role::kH]);
  CHECK(kernels_take(problem).why_not.find("e4m3") != std::string::npos);
  CHECK_THROWS_AS((void)lora_bench::kernel_number(Dtype::kE4m3), lora_bench::CaseError);
  problem = two_slices();
  problem.dtype[lora_bench::Role::kA] = Dtype::kFp16;
  CHECK(fast_kernels_take(problem).why_not.find("have one dtype") != std::string::npos);
  problem = two_slices();
  problem.widths.assign(17, 1);
  CHECK(kernels_take(problem).why_not.find("17 slices") != std::string::npos);
  CHECK_THROWS_AS((void)shrink_params(problem, {}), lora_bench::CaseError);
}

TEST_CASE("the registry lists each backend once, and a missing GPU is a reason, not a gap") {
  const auto& registry = lora_bench::backend_registry();
  bool naive = false;
  for (const lora_bench::BackendEntry& entry : registry) {
    CHECK_FALSE(entry.summary.empty());
    if (entry.name == "naive") {
      CHECK_FALSE(naive);
      naive = true;
      CHECK(entry.why_not_here == lora_bench::why_no_gpu());
    }
    if (entry.why_not_here.empty()) {
      CHECK(entry.make()->name() == entry.name);
    }
  }
  CHECK(naive);
}
