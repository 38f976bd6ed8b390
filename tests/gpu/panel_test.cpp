#include <doctest/doctest.h>

#include <vector>

#include "device/facts.h"
#include "ops/backends.h"
#include "support/need_gpu.h"
#include "support/proved.h"
#include "support/workload_case.h"
#include "verify/verify.h"

using lora_bench::Dtype;
using lora_bench::Problem;
using lora_bench::test::Proved;

namespace {

// Random cases that panel takes; every third has few adapters and many rows.
lora_bench::Case panel_case(std::uint64_t seed) {
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
  static const auto panel = lora_bench::make_panel_backend();
  const Problem problem = problem_of(spec);
  const lora_bench::Verdict verdict = verify(problem, *panel, *memory, {.relations = true});
  CAPTURE(spec.seed);
  CAPTURE(verdict.message);
  lora_bench::test::check_proved(proved, problem, verdict);
}

}  // namespace

TEST_CASE("panel passes every level on random cases, few rows an adapter and many") {
  LORA_BENCH_NEED_GPU()
  Proved proved;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    check_passes(panel_case(seed), proved);
  }
  check_enough(proved);
}

TEST_CASE("panel passes on whole, aligned shapes of every rank class") {
  LORA_BENCH_NEED_GPU()
  Proved proved;
  for (const std::int64_t rank : {1, 4, 7, 8, 16, 20, 24, 64, 100, 129, 192, 196, 256, 512}) {
    for (const std::int64_t rows : {1, 15, 16, 17, 33, 64, 65, 130}) {
      lora_bench::Case spec = workload_case(rows, 1);
      spec.seed = static_cast<std::uint64_t>(rank * 1000 + rows);
      spec.dtype = rows % 2 == 0 ? Dtype::kBf16 : Dtype::kFp16;
      spec.intermediate = rank % 3 == 0 ? spec.dtype : Dtype::kFp32;
      spec.layer.in_features = spec.layer.x_stride = 544;
      spec.layer.widths = {264, 0, 128};
      spec.layer.y_stride = 392;
      spec.adapters.rank.list = {rank};
      spec.adapters.max_rank = (rank + 3) / 4 * 4;
      spec.adapters.bias = rows % 3 == 0;
      check_passes(spec, proved);
    }
  }
  check_enough(proved);
}

TEST_CASE("panel passes where h of a rank above 128 lies in shared memory, wherever lanes end") {
  LORA_BENCH_NEED_GPU()
  Proved proved;
  using Ranks = std::vector<std::int64_t>;
  for (const Ranks& ranks : {Ranks{130}, Ranks{132}, Ranks{133}, Ranks{192}, Ranks{7, 256}}) {
    for (const std::int64_t rows : {1, 17, 64, 130, 700}) {
      lora_bench::Case spec = workload_case(rows, static_cast<std::int64_t>(ranks.size()));
      spec.seed = static_cast<std::uint64_t>(ranks.back() * 1000 + rows);
      spec.dtype = Dtype::kBf16;
      spec.intermediate = Dtype::kFp32;
      spec.layer.in_features = spec.layer.x_stride = 544;
      spec.layer.widths = {264, 0, 128};
      spec.layer.y_stride = 392;
      spec.adapters.rank.list = ranks;
      spec.adapters.max_rank = (ranks.back() + 3) / 4 * 4;
      check_passes(spec, proved);
    }
  }
  check_enough(proved);
}
