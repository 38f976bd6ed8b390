#include <doctest/doctest.h>

#include "ops/cublas_backend.h"
#include "ops/cublas_library.h"
#include "support/need_gpu.h"
#include "support/workload_case.h"
#include "verify/verify.h"

using lora_bench::Problem;
using lora_bench::Status;

TEST_CASE("cublas passes every level on random cases") {
  LORA_BENCH_NEED(lora_bench::why_no_cublas())
  const auto memory = lora_bench::make_device_memory();
  const auto cublas = lora_bench::make_cublas_backend();
  int proved = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Problem problem = problem_of(random_case(seed));
    const lora_bench::Verdict verdict = verify(problem, *cublas, *memory, {.relations = true});
    CAPTURE(seed);
    CAPTURE(verdict.message);
    CHECK((verdict.status == Status::kPassed || verdict.status == Status::kMistrusted));
    proved += verdict.status == Status::kPassed ? 1 : 0;
  }
  CHECK(proved > 50);
}

TEST_CASE("cublas passes on long rows, many rows an adapter and one of each") {
  LORA_BENCH_NEED(lora_bench::why_no_cublas())
  const auto memory = lora_bench::make_device_memory();
  const auto cublas = lora_bench::make_cublas_backend();
  for (const std::int64_t slots : {1, 3, 96}) {
    lora_bench::Case spec = workload_case(96, slots);
    spec.layer.in_features = spec.layer.x_stride = 2048;
    spec.layer.widths = {512, 0, 136};
    spec.layer.y_stride = 648;
    spec.skew.kind = lora_bench::Skew::kDistinct;
    for (const lora_bench::Dtype h : {lora_bench::Dtype::kFp32, spec.dtype}) {
      spec.intermediate = h;  // a wide one has weights widened
      const Problem problem = problem_of(spec);
      const lora_bench::Verdict verdict = verify(problem, *cublas, *memory, {.relations = true});
      CAPTURE(slots);
      CAPTURE(verdict.message);
      CHECK(verdict.status == Status::kPassed);
    }
  }
}
