#include <doctest/doctest.h>

#include "ops/backends.h"
#include "ops/operands.h"
#include "support/host_run.h"
#include "support/need_gpu.h"
#include "support/workload_case.h"
#include "verify/verify.h"

using lora_bench::Backend;
using lora_bench::Problem;
using lora_bench::Status;

namespace {

std::vector<std::unique_ptr<Backend>> tensor_core_backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(lora_bench::make_grouped_backend());
  backends.push_back(lora_bench::make_grouped_ordered_backend());
  backends.push_back(lora_bench::make_chunked_backend());
  return backends;
}

}  // namespace

TEST_CASE("tensor core backends pass every level on random cases") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  const lora_bench::DeviceFacts facts = lora_bench::gpu_facts();
  for (const auto& backend : tensor_core_backends()) {
    int proved = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const Problem problem = problem_of(random_case(seed));
      if (!backend->supports(problem, facts).yes) {
        continue;
      }
      const lora_bench::Verdict verdict = verify(problem, *backend, *memory, {.relations = true});
      CAPTURE(backend->name());
      CAPTURE(seed);
      CAPTURE(verdict.message);
      CHECK((verdict.status == Status::kPassed || verdict.status == Status::kMistrusted));
      proved += verdict.status == Status::kPassed ? 1 : 0;
    }
    CHECK(proved > 50);
  }
}

TEST_CASE("on exact data tensor core backends agree with the plain formula bit for bit") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  const auto host = lora_bench::make_host_memory();
  const lora_bench::DeviceFacts facts = lora_bench::gpu_facts();
  for (const auto& backend : tensor_core_backends()) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const Problem problem = problem_of(random_case(seed));
      if (!backend->supports(problem, facts).yes || backend->workspace_bytes(problem) > 0) {
        continue;
      }
      const lora_bench::Tensors tensors = draw_tensors(problem, lora_bench::Fill::kExact, seed);
      const LoadedProblem device(problem, tensors, *memory);
      const LoadedProblem plain(problem, tensors, *host);
      backend->launch(problem, device.operands, {});
      memory->synchronize();
      apply_plain_formula(problem, plain.operands);
      CAPTURE(backend->name());
      CAPTURE(seed);
      CHECK(device.download_y() == plain.download_y());
      CHECK(device.download_h() == plain.download_h());
      CHECK(device.damage().empty());
    }
  }
}
