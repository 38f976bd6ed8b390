#include <doctest/doctest.h>

#include <algorithm>

#include "device/facts.h"
#include "device/nvml.h"
#include "measure/ceilings.h"
#include "measure/clock.h"
#include "measure/sampling.h"
#include "ops/backends.h"
#include "support/host_run.h"
#include "support/need_gpu.h"
#include "support/workload_case.h"

using lora_bench::LaunchMode;
using lora_bench::Stream;

namespace {

double least_of_ten(lora_bench::Clock& clock, int slot) {
  double least = clock.run_seconds(slot);
  for (int i = 1; i < 10; ++i) {
    least = std::min(least, clock.run_seconds(slot));
  }
  return least;
}

}  // namespace

TEST_CASE("a sequence of n launches takes about n times as long as one") {
  LORA_BENCH_NEED_GPU()
  lora_bench::Case spec = workload_case(512, 8);
  spec.layer.in_features = 4096;
  spec.layer.x_stride = 4096;
  const lora_bench::Problem problem = problem_of(spec);
  const auto memory = lora_bench::make_device_memory();
  const LoadedProblem loaded(problem, draw_tensors(problem, lora_bench::Fill::kTiming, 1), *memory);
  const auto naive = lora_bench::make_naive_backend();
  const lora_bench::Launch launch = [&](Stream stream) {
    naive->launch(problem, loaded.operands, stream);
  };
  for (const LaunchMode mode : {LaunchMode::kGraph, LaunchMode::kStream}) {
    const auto clock = lora_bench::make_device_clock(mode);
    clock->load(0, std::vector<lora_bench::Launch>(100, launch));
    clock->load(1, std::vector<lora_bench::Launch>(400, launch));
    const double ratio = least_of_ten(*clock, 1) / least_of_ten(*clock, 0);
    CHECK(ratio > 3);
    CHECK(ratio < 5);
  }
}

TEST_CASE("a launch that is kept is asked for twice and repeated as often as it is timed") {
  LORA_BENCH_NEED_GPU()
  const lora_bench::Problem problem = problem_of(workload_case(512, 8));
  const auto memory = lora_bench::make_device_memory();
  const LoadedProblem loaded(problem, draw_tensors(problem, lora_bench::Fill::kTiming, 1), *memory);
  const auto naive = lora_bench::make_naive_backend();
  int asked = 0;
  const lora_bench::Launch launch = [&](Stream stream) {
    ++asked;
    naive->launch(problem, loaded.operands, stream);
  };
  const auto clock = lora_bench::make_device_clock(LaunchMode::kGraph);
  const std::vector<lora_bench::Launch> kept(100, clock->kept(launch));
  CHECK(asked == 2);
  clock->load(1, kept);
  lora_bench::load_alone(*clock, clock->separator(), kept);
  const double repeated = least_of_ten(*clock, 1);
  CHECK(least_of_ten(*clock, lora_bench::kAlone) > repeated);
  CHECK(asked == 2);
  clock->load(1, std::vector<lora_bench::Launch>(100, launch));
  CHECK(asked == 202);
  const double ratio = repeated / least_of_ten(*clock, 1);
  CHECK(ratio > 0.8);
  CHECK(ratio < 1.25);
}

TEST_CASE("a kernel that takes no early start adds between separators what it takes back to back") {
  LORA_BENCH_NEED_GPU()
  lora_bench::Case spec = workload_case(512, 8);
  spec.layer.in_features = 4096;
  spec.layer.x_stride = 4096;
  const lora_bench::Problem problem = problem_of(spec);
  const auto memory = lora_bench::make_device_memory();
  const LoadedProblem loaded(problem, draw_tensors(problem, lora_bench::Fill::kTiming, 1), *memory);
  const auto naive = lora_bench::make_naive_backend();
  const lora_bench::Launch launch = [&](Stream stream) {
    naive->launch(problem, loaded.operands, stream);
  };
  constexpr std::size_t kLaunches = 100;
  for (const LaunchMode mode : {LaunchMode::kGraph, LaunchMode::kStream}) {
    const auto clock = lora_bench::make_device_clock(mode);
    const std::vector<lora_bench::Launch> launches(kLaunches, launch);
    clock->load(0, launches);
    lora_bench::load_alone(*clock, clock->separator(), launches);
    const double separators = least_of_ten(*clock, lora_bench::kSeparators);
    const double added = least_of_ten(*clock, lora_bench::kAlone) - separators;
    CHECK(separators / kLaunches > 2e-6);
    CHECK(separators / kLaunches < 10e-6);
    const double ratio = added / least_of_ten(*clock, 0);
    CHECK(ratio > 0.9);
    CHECK(ratio < 1.1);
  }
}

TEST_CASE("a graph of more kernels than the driver may have room for is timed all the same") {
  LORA_BENCH_NEED_GPU()
  constexpr std::size_t kSeparators = 30000;
  const auto clock = lora_bench::make_device_clock(LaunchMode::kGraph);
  clock->load(0, std::vector<lora_bench::Launch>(kSeparators, clock->separator()));
  for (int run = 0; run < 2; ++run) {
    const double seconds = clock->run_seconds(0) / kSeparators;
    CHECK(seconds > 2e-6);
    CHECK(seconds < 10e-6);
  }
}

TEST_CASE("the SM clock is read where NVML is there, the same as with the other conditions") {
  LORA_BENCH_NEED_GPU()
  const auto clock = lora_bench::make_device_clock(LaunchMode::kGraph);
  const double mhz = lora_bench::SmClock(lora_bench::gpu_facts().identity).mhz();
  const double among_others = clock->conditions().clock_mhz;
  CHECK((mhz > 0) == (among_others > 0));
  if (mhz > 0) {
    CHECK(mhz > 100);
    CHECK(mhz < 10000);
  }
}

TEST_CASE("the clock of a run is counted over it") {
  LORA_BENCH_NEED_GPU()
  constexpr std::size_t kSeparators = 100;
  constexpr double kClocksOfOne = 6000;  // that a separator spins; launching it takes less
  for (const LaunchMode mode : {LaunchMode::kGraph, LaunchMode::kStream}) {
    const auto clock = lora_bench::make_device_clock(mode);
    clock->load(0, std::vector<lora_bench::Launch>(kSeparators, clock->separator()));
    for (int run = 0; run < 3; ++run) {
      const double seconds = clock->run_seconds(0);
      const double clocks = 1e6 * clock->sm_clock_mhz() * seconds;
      CHECK(clocks > kSeparators * kClocksOfOne);
      CHECK(clocks < 2 * kSeparators * kClocksOfOne);
    }
  }
}

TEST_CASE("the ceilings of the device are whole and rise with the size") {
  LORA_BENCH_NEED_GPU()
  const lora_bench::Ceilings ceilings = lora_bench::measure_device_ceilings();
  REQUIRE(ceilings.memory_curve.size() >= 10);
  CHECK(ceilings.memory_curve.front().seconds < ceilings.memory_curve.back().seconds);
  for (std::size_t i = 0; i < ceilings.memory_curve.size(); ++i) {
    CHECK(ceilings.memory_curve[i].seconds > 0);
    CHECK(ceilings.cache_curve[i].seconds <= ceilings.memory_curve[i].seconds);
  }
  REQUIRE(ceilings.again_curve.size() >= 10);
  for (const lora_bench::Ceilings::Point& again : ceilings.again_curve) {
    CHECK(again.seconds <
          1.1 * lora_bench::read_seconds(ceilings.memory_curve, static_cast<double>(again.bytes)));
  }
  CHECK(ceilings.copy_bytes_per_s > 0);
  CHECK(ceilings.launch_seconds > 0);
  CHECK(ceilings.launch_seconds < 1e-4);
  CHECK(ceilings.peaks.size() == 3);
}
