#include <doctest/doctest.h>

#include "device/facts.h"
#include "ops/backends.h"
#include "ops/operands.h"
#include "support/host_run.h"
#include "support/need_gpu.h"
#include "support/proved.h"
#include "support/workload_case.h"
#include "verify/verify.h"

using lora_bench::Dtype;
using lora_bench::Problem;
using lora_bench::test::Proved;

namespace {

// Random cases that bgmv takes; every third has one adapter and many rows, for the segment form.
lora_bench::Case bgmv_case(std::uint64_t seed) {
  lora_bench::Case spec = random_case(seed);
  if (spec.dtype == Dtype::kFp32) {
    spec.dtype = seed % 2 == 0 ? Dtype::kBf16 : Dtype::kFp16;
    spec.intermediate = seed % 4 < 2 ? Dtype::kFp32 : spec.dtype;
  }
  if (seed % 3 == 0) {
    spec.adapters.slots = 3;
    spec.batch.prefill = {1 + static_cast<std::int64_t>(seed % 7) * 50, 40, 17};
  }
  return spec;
}

void check_passes(const lora_bench::Case& spec, Proved& proved) {
  static const auto memory = lora_bench::make_device_memory();
  static const auto bgmv = lora_bench::make_bgmv_backend();
  const Problem problem = problem_of(spec);
  const lora_bench::Verdict verdict = verify(problem, *bgmv, *memory, {.relations = true});
  CAPTURE(spec.seed);
  CAPTURE(verdict.message);
  lora_bench::test::check_proved(proved, problem, verdict);
}

}  // namespace

TEST_CASE("bgmv passes every level on random cases, row by row and in segments") {
  LORA_BENCH_NEED_GPU()
  Proved proved;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    check_passes(bgmv_case(seed), proved);
  }
  check_enough(proved);
}

TEST_CASE("bgmv passes on whole, aligned shapes of every rank class") {
  LORA_BENCH_NEED_GPU()
  Proved proved;
  for (const std::int64_t rank : {1, 7, 8, 16, 24, 64, 100, 256, 512}) {
    for (const std::int64_t rows : {1, 15, 16, 17, 33, 64, 65, 130}) {
      lora_bench::Case spec = workload_case(rows, 1);
      spec.seed = static_cast<std::uint64_t>(rank * 1000 + rows);
      spec.dtype = rows % 2 == 0 ? Dtype::kBf16 : Dtype::kFp16;
      spec.intermediate = rank % 3 == 0 ? spec.dtype : Dtype::kFp32;
      spec.layer.in_features = spec.layer.x_stride = 544;
      spec.layer.widths = {264, 0, 128};
      spec.layer.y_stride = 392;
      spec.adapters.rank.list = {rank};
      spec.adapters.max_rank = (rank + 7) / 8 * 8;
      spec.adapters.bias = rows % 3 == 0;
      check_passes(spec, proved);
    }
  }
  check_enough(proved);
}

TEST_CASE("on exact data bgmv agrees with the plain formula bit for bit, and stays in bounds") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  const auto host = lora_bench::make_host_memory();
  const auto bgmv = lora_bench::make_bgmv_backend();
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Problem problem = problem_of(bgmv_case(seed));
    const lora_bench::Tensors tensors = draw_tensors(problem, lora_bench::Fill::kExact, seed);
    const LoadedProblem device(problem, tensors, *memory);
    const LoadedProblem plain(problem, tensors, *host);
    bgmv->launch(problem, device.operands, {});
    memory->synchronize();
    apply_plain_formula(problem, plain.operands);
    CAPTURE(seed);
    CHECK(device.download_y() == plain.download_y());
    CHECK(device.damage().empty());
  }
}
