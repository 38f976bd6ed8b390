#include <doctest/doctest.h>

#include <fmt/format.h>

#include <string>

#include "device/cupti.h"
#include "device/launch_counters.h"
#include "measure/ceilings.h"
#include "measure/lone_launch.h"
#include "run/select.h"
#include "scenario/scenario.h"
#include "support/need_gpu.h"
#include "workload/problem.h"

using namespace lora_bench;

namespace {

struct Counted {
  LaunchCounters counters;
  double weight_bytes = 0;
};

Counted count_launch(const CounterSession& session, const Case& spec, const Backend& backend,
                     CacheMode cache) {
  const Problem problem = make_problem(spec);
  const auto memory = make_device_memory();
  LoneLaunch lone(problem, spec.seed, cache, backend, *memory, gpu_facts());
  lone.warm_up();
  return {session.count([&] { lone.prepare(); },
                        [&] {
                          lone.launch();
                          memory->synchronize();
                        }),
          static_cast<double>(count_work(problem).weight_bytes)};
}

Scenario anchors() { return load_scenario(LORA_BENCH_SOURCE_DIR "/scenarios/anchors.yaml", {}); }

}  // namespace

TEST_CASE("counters: every backend reads from memory what must come from there, on every anchor") {
  LORA_BENCH_NEED_GPU()
  LORA_BENCH_NEED(why_no_counters())
  const CounterSession session;
  CHECK(session.missing() == "");
  int counted = 0;
  const Scenario scenario = anchors();
  for (const std::string& name : default_backends()) {
    const Selected selected = select_backend(name);
    for (const Case& spec : scenario.cases) {
      const Problem problem = make_problem(spec);
      if (!selected.backend->supports(problem, gpu_facts()).yes) {
        continue;
      }
      CAPTURE(name);
      CAPTURE(spec.id);
      const Counted found = count_launch(session, spec, *selected.backend, CacheMode::kWeightsCold);
      REQUIRE(found.counters.dram_read_bytes.has_value());
      CAPTURE(*found.counters.dram_read_bytes);
      CAPTURE(found.weight_bytes);
      CHECK(static_cast<double>(*found.counters.dram_read_bytes) >= 0.99 * found.weight_bytes);
      CHECK(found.counters.dram_written_bytes.has_value());
      REQUIRE(found.counters.l2_hit_rate.has_value());
      CHECK(*found.counters.l2_hit_rate >= 0);
      CHECK(*found.counters.l2_hit_rate <= 1);
      CHECK(found.counters.sm_cycles.value_or(0) > 0);
      ++counted;
    }
  }
  CHECK(counted >= 17);
}

TEST_CASE("counters: weights that the L2 still holds are not read from memory") {
  LORA_BENCH_NEED_GPU()
  LORA_BENCH_NEED(why_no_counters())
  const CounterSession session;
  const Scenario scenario = anchors();
  const Case& spec = scenario.cases.at(1);  // one adapter: 1.2 MB of weights
  const Selected naive = select_backend("naive");
  const Counted hot = count_launch(session, spec, *naive.backend, CacheMode::kHot);
  const Counted cold = count_launch(session, spec, *naive.backend, CacheMode::kWeightsCold);
  REQUIRE(hot.counters.dram_read_bytes.has_value());
  REQUIRE(cold.counters.dram_read_bytes.has_value());
  CAPTURE(*hot.counters.dram_read_bytes);
  CAPTURE(*cold.counters.dram_read_bytes);
  CHECK(static_cast<double>(*hot.counters.dram_read_bytes) < 0.5 * hot.weight_bytes);
  CHECK(static_cast<double>(*cold.counters.dram_read_bytes) >= 0.99 * cold.weight_bytes);
  CHECK(*hot.counters.l2_hit_rate > *cold.counters.l2_hit_rate);
}
