#include "device/launch_counters.h"
#include "device/cupti.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <vector>

#include "device/facts.h"
#include "device/found_library.h"
#include "measure/lone_launch.h"
#include "measure/rotation.h"
#include "ops/backends.h"
#include "run/case_runner.h"
#include "support/observed_backend.h"
#include "support/process.h"
#include "support/workload_case.h"

namespace lora_bench::test {
namespace {

CounterMetrics metrics_without(const std::set<std::string>& unknown) {
  return choose_counter_metrics("GX1",
                                [&](const char* metric) { return unknown.count(metric) == 0; });
}

// Every weight a backend was launched on, by the address of the first A.
struct Launched {
  std::vector<const void*> all;
  std::shared_ptr<const Backend> backend = std::make_shared<ObservedBackend>(ObservedBackend::Hooks{
      .before = {}, .after = [this](const Problem&, const Operands& operands) {
        all.push_back(operands.a.front());
      }});
};

Row counted(const Case& spec, std::shared_ptr<const Backend> backend, CountLaunch count) {
  Targets targets;
  KeptGroundwork kept;
  return run_case({.spec = spec,
                   .backend = {"observed", "", std::move(backend), ""},
                   .relations = false,
                   .timing = false,
                   .thresholds = {},
                   .repro = {},
                   .count = std::move(count)},
                  targets, kept);
}

TEST_CASE(
    "counters: the first metric that a GPU counts fills a column, and what it lacks is named") {
  const CounterMetrics all = metrics_without({});
  CHECK(all.missing.empty());
  REQUIRE(all.names().size() == 5);
  CHECK(std::string(all.names()[0]) == "dram__bytes_read.sum");
  const CounterMetrics other = metrics_without({"dram__bytes_read.sum"});
  CHECK(std::string(other.names()[0]) == "dram__bytes_op_read.sum");
  CHECK(other.missing.empty());
  const CounterMetrics fewer = metrics_without({"lts__t_sectors_lookup_miss.sum"});
  CHECK(fewer.names().size() == 4);
  CHECK(fewer.missing ==
        "this GPU (GX1) does not count l2_hit_rate (lts__t_sectors_lookup_miss.sum): left empty");
  const CounterMetrics none = choose_counter_metrics("GX1", [](const char*) { return false; });
  CHECK(none.names().empty());
  CHECK(
      contains(none.missing, "dram_read_bytes (dram__bytes_read.sum or dram__bytes_op_read.sum)"));
}

TEST_CASE("counters: each value goes to its column, those behind a missing one as well") {
  const LaunchCounters all = counters_of(metrics_without({}), {4096, 64, 300, 500, 1e4});
  CHECK(all.dram_read_bytes == 4096);
  CHECK(all.dram_written_bytes == 64);
  CHECK(all.l2_hit_rate == 0.375);
  CHECK(all.sm_cycles == 10000);
  const LaunchCounters fewer =
      counters_of(metrics_without({"dram__bytes_write.sum", "dram__bytes_op_write.sum"}),
                  {4096, 300, 500, 1e4});
  CHECK(fewer.dram_read_bytes == 4096);
  CHECK_FALSE(fewer.dram_written_bytes.has_value());
  CHECK(fewer.l2_hit_rate == 0.375);
  CHECK(fewer.sm_cycles == 10000);
  const double nothing = std::nan("");
  const LaunchCounters unknown =
      counters_of(metrics_without({}), {nothing, nothing, nothing, nothing, nothing});
  CHECK_FALSE(unknown.dram_read_bytes.has_value());
  CHECK_FALSE(unknown.l2_hit_rate.has_value());
  CHECK_FALSE(counters_of(metrics_without({}), {0, 0, 0, 0, 0}).l2_hit_rate.has_value());
}

TEST_CASE("counters: what CUPTI refuses is told with its call, its result and what to do") {
  const std::string refused = why_counters_failed(
      "cuptiRangeProfilerStop", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", "no privileges");
  CHECK(contains(refused, "(cuptiRangeProfilerStop: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)"));
  CHECK(contains(refused, "ERR_NVGPUCTRPERM"));
  CHECK(contains(refused, "CAP_SYS_ADMIN"));
  CHECK(contains(refused, "NVreg_RestrictProfilingToAdminUsers=0"));
  CHECK(contains(why_counters_failed("cuptiX", "CUPTI_ERROR_HARDWARE_BUSY", ""), "dcgmi"));
  CHECK(why_counters_failed("cuptiX", "CUPTI_ERROR_NOT_READY", "Not\nready. \n") ==
        "the GPU's counters cannot be read (cuptiX: CUPTI_ERROR_NOT_READY, Not ready.)");
  CHECK(why_counters_failed("cuptiX", "CUPTI_ERROR_UNKNOWN", "CUPTI_ERROR_UNKNOWN") ==
        "the GPU's counters cannot be read (cuptiX: CUPTI_ERROR_UNKNOWN)");
}

TEST_CASE("counters: a library that is nowhere is named with every place it was looked for") {
  FoundLibrary found("a product", "libno-such-library.so", 7, {"/no/such/folder"});
  void (*function)() = nullptr;
  found.find("function", function);
  CHECK((function == nullptr));
  CHECK(found.missing() ==
        "libno-such-library.so.7 cannot be loaded, neither from the loader's path nor from "
        "/no/such/folder or /usr/local/cuda/lib64: install a product 7, or name its folder in "
        "LD_LIBRARY_PATH");
}

TEST_CASE("counters: a machine without a usable GPU says why there are none") {
  if (!why_no_gpu().empty()) {
    CHECK(why_no_counters() == why_no_gpu());
  }
}

TEST_CASE("counters: each pass launches other weights, then once those that are counted") {
  Launched launched;
  Case spec = workload_case(6, 3);
  REQUIRE(spec.measure.cache == CacheMode::kWeightsCold);
  int passes = 0;
  const Row row = counted(spec, launched.backend, [&](const auto& prepare, const auto& launch) {
    for (; passes < 3; ++passes) {
      launched.all.clear();
      prepare();
      const std::vector<const void*> before = launched.all;
      launch();
      CHECK_FALSE(before.empty());
      REQUIRE(launched.all.size() == before.size() + 1);
      CHECK(std::set<const void*>(before.begin(), before.end()).count(launched.all.back()) == 0);
    }
    LaunchCounters counters;
    counters.dram_read_bytes = 12345;
    counters.l2_hit_rate = 0.5;
    return counters;
  });
  CHECK(passes == 3);
  CHECK(row.status == Status::kPassed);
  CHECK(row.counted.dram_read_bytes == 12345);
  CHECK(row.counted.l2_hit_rate == 0.5);
  CHECK_FALSE(row.counted.sm_cycles.has_value());
}

TEST_CASE("counters: with hot caches the weights that are counted were launched just before") {
  Launched launched;
  Case spec = workload_case(6, 3);
  spec.measure.cache = CacheMode::kHot;
  const Row row = counted(spec, launched.backend, [&](const auto& prepare, const auto& launch) {
    launched.all.clear();
    prepare();
    launch();
    CHECK(launched.all.size() == 2);
    CHECK(launched.all.front() == launched.all.back());
    return LaunchCounters();
  });
  CHECK(row.status == Status::kPassed);
}

TEST_CASE("counters: where they cannot be read a right row stays PASSED and says so") {
  Launched launched;
  const Row row = counted(workload_case(6, 3), launched.backend,
                          [](const auto&, const auto&) -> LaunchCounters {
                            throw CountersFailed("cuptiX: CUPTI_ERROR_UNKNOWN");
                          });
  CHECK(row.status == Status::kPassed);
  CHECK(row.warning == "not counted: cuptiX: CUPTI_ERROR_UNKNOWN");
  CHECK_FALSE(row.counted.dram_read_bytes.has_value());
}

TEST_CASE("counters: a row that is not right is not counted") {
  const Row row = counted(workload_case(6, 3), make_fake("wrong"),
                          [](const auto&, const auto&) -> LaunchCounters {
                            FAIL("it was counted");
                            return {};
                          });
  CHECK(row.status == Status::kFailed);
}

TEST_CASE("counters: what a backend throws while it is counted is the backend's") {
  auto fails = std::make_shared<bool>(false);
  const auto backend = std::make_shared<ObservedBackend>(
      ObservedBackend::Hooks{.before =
                                 [fails](const Problem&, const Operands&) {
                                   return *fails ? throw CaseError("no more launches") : true;
                                 },
                             .after = {}});
  const Row row = counted(workload_case(6, 3), backend, [&](const auto& prepare, const auto&) {
    *fails = true;
    prepare();
    return LaunchCounters();
  });
  CHECK(row.status == Status::kError);
  CHECK(row.message == "no more launches");
}

TEST_CASE("too few sets to fill three caches are gone round once, behind an eviction") {
  const Problem problem = problem_of(workload_case(6, 3));
  const std::int64_t touched = touched_bytes(problem, CacheMode::kWeightsCold);
  REQUIRE(touched > 0);
  CHECK(needs_eviction(problem, CacheMode::kWeightsCold, 2, touched));
  CHECK_FALSE(needs_eviction(problem, CacheMode::kWeightsCold, 4, touched));
  CHECK_FALSE(needs_eviction(problem, CacheMode::kHot, 1, touched));
}

}  // namespace
}  // namespace lora_bench::test
