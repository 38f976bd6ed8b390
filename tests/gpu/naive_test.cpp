#include <doctest/doctest.h>

#include "core/error.h"
#include "device/facts.h"
#include "ops/backends.h"
#include "ops/operands.h"
#include "support/host_run.h"
#include "support/need_gpu.h"
#include "support/proved.h"
#include "support/workload_case.h"
#include "verify/verify.h"

using lora_bench::Problem;

TEST_CASE("naive passes every level on random cases") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  const auto naive = lora_bench::make_naive_backend();
  lora_bench::test::Proved proved;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Problem problem = problem_of(random_case(seed));
    const lora_bench::Verdict verdict = verify(problem, *naive, *memory, {.relations = true});
    CAPTURE(seed);
    CAPTURE(verdict.message);
    check_proved(proved, problem, verdict);
  }
  check_enough(proved);
}

TEST_CASE("on exact data naive agrees with the plain formula bit for bit, and stays in bounds") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  const auto host = lora_bench::make_host_memory();
  const auto naive = lora_bench::make_naive_backend();
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Problem problem = problem_of(random_case(seed));
    const lora_bench::Tensors tensors = draw_tensors(problem, lora_bench::Fill::kExact, seed);
    const LoadedProblem device(problem, tensors, *memory);
    const LoadedProblem plain(problem, tensors, *host);
    naive->launch(problem, device.operands, {});
    memory->synchronize();
    apply_plain_formula(problem, plain.operands);
    CAPTURE(seed);
    CHECK(device.download_y() == plain.download_y());
    CHECK(device.download_h() == plain.download_h());
    CHECK(device.damage().empty());
  }
}

TEST_CASE("an overrun in device memory is told with its side, length and offset") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  lora_bench::GuardedBuffer buffer(*memory, 100, 2);
  CHECK(buffer.damage().empty());
  memory->fill(static_cast<std::byte*>(buffer.data()) + 100, std::byte{0xFF}, 2);
  CHECK(buffer.damage() == "2 bytes after the end, first at +0");
}

TEST_CASE("device memory that cannot be had is refused with its size, and nothing else breaks") {
  LORA_BENCH_NEED_GPU()
  const auto memory = lora_bench::make_device_memory();
  CHECK_THROWS_WITH_AS((void)memory->allocate(std::int64_t{1} << 50),
                       doctest::Contains("1125899906842624"), lora_bench::CaseError);
  void* address = memory->allocate(1024);
  memory->synchronize();
  memory->release(address);
}

TEST_CASE("the facts of the GPU are whole") {
  LORA_BENCH_NEED_GPU()
  const lora_bench::DeviceFacts facts = lora_bench::gpu_facts();
  CHECK(facts.identity.starts_with("GPU-"));
  CHECK(facts.compute_capability >= 75);
  CHECK(facts.multiprocessors > 0);
  CHECK(facts.cache_bytes > 0);
  CHECK(facts.memory_bytes > 0);
  CHECK_FALSE(facts.driver.empty());
  CHECK_FALSE(facts.runtime.empty());
}
