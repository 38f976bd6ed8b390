#include "run/counted_row.h"

#include <memory>
#include <utility>

#include "measure/lone_launch.h"
#include "run/attempt.h"
#include "run/describe.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

// Everything the working thread touches, owned here, so that a hung backend can be left behind.
struct CountedLaunch {
  CountedLaunch(const Case& of, const Problem& its) : spec(of), problem(its) {}

  Case spec;
  Problem problem;
  std::shared_ptr<Pulse> pulse = std::make_shared<Pulse>();
  std::shared_ptr<const Backend> backend;
  std::shared_ptr<Memory> memory;
  DeviceFacts facts;
  CountLaunch count;
  LaunchCounters counters;
  std::string failed;  // why there are none
};

// Memory that copies nothing when it is waited for, which would be counted.
std::shared_ptr<Memory> plain_memory(Space space, Targets& targets) {
  return space == Space::kDevice ? std::shared_ptr<Memory>(make_device_memory())
                                 : targets.memory(space);
}

void count(CountedLaunch& counted) {
  LoneLaunch lone(counted.problem, counted.spec.seed, counted.spec.measure.cache, *counted.backend,
                  *counted.memory, counted.facts);
  lone.warm_up();
  try {
    counted.counters = counted.count([&] { lone.prepare(); },
                                     [&] {
                                       lone.launch();
                                       counted.memory->synchronize();
                                     });
  } catch (const CountersFailed& failed) {
    counted.failed = failed.what();
  }
}

}  // namespace

void count_row(Row& row, const Problem& problem, const CaseRequest& request, Targets& targets) {
  if (!request.count || row.status != Status::kPassed || row.interrupted) {
    return;
  }
  const Space space = request.backend.backend->space();
  const auto counted = std::make_shared<CountedLaunch>(request.spec, problem);
  counted->backend = watched(request.backend.backend, counted->pulse);
  counted->memory = watched(plain_memory(space, targets), counted->pulse);
  counted->facts = targets.facts(space);
  counted->count = request.count;
  if (!came_back(
          row, [counted] { count(*counted); }, *counted->pulse, request.spec.verify.timeout_s)) {
    row.message += " when one launch was counted";
    return;
  }
  if (!counted->failed.empty()) {
    warn(row, "not counted: " + counted->failed);
  }
  row.dram_read_bytes = counted->counters.dram_read_bytes;
  row.dram_written_bytes = counted->counters.dram_written_bytes;
  row.l2_hit_rate = counted->counters.l2_hit_rate;
  row.sm_cycles = counted->counters.sm_cycles;
}

}  // namespace lora_bench
