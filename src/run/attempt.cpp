#include "run/attempt.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "measure/lone_launch.h"
#include "run/describe.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

// A time below the floor counts against the kernel only when the ceilings were looked at again.
void judge_time(Row& row, const Attempt& attempt, Targets& targets) {
  const Row before = row;
  attempt.add_floor(row, targets.ceilings(attempt.space));
  bool anew = false;
  while (before.status == Status::kPassed && row.status == Status::kInvalid &&
         targets.doubt_ceilings(attempt.space)) {
    anew = true;
    row = before;
    attempt.add_floor(row, targets.ceilings(attempt.space));
  }
  if (anew) {
    warn_of_ceilings_anew(row);
  }
}

bool worked(Row& row, const std::shared_ptr<Attempt>& attempt, void (Attempt::*work)()) {
  return came_back(
      row, [attempt, work] { ((*attempt).*work)(); }, *attempt->pulse,
      attempt->spec.verify.timeout_s);
}

}  // namespace

Attempt::Attempt(const CaseRequest& request, Targets& targets)
    : spec(request.spec),
      space(request.backend.backend->space()),
      facts(targets.facts(space)),
      relations(request.relations || request.spec.verify.relations) {}

void run_attempt(Row& row, const std::shared_ptr<Attempt>& attempt, const CaseRequest& request,
                 Targets& targets) {
  if (!worked(row, attempt, &Attempt::ask)) {
    return;
  }
  attempt->asked(targets);
  if (!attempt->support.yes) {
    judge(row, Status::kSkipped, attempt->support.why_not);
    return;
  }
  const std::int64_t needed = attempt->needed_bytes(request.timing || request.count != nullptr);
  if (std::string why = why_no_room(needed, attempt->memory->available_bytes()); !why.empty()) {
    judge(row, Status::kSkipped, std::move(why));
    return;
  }
  row.numerics = attempt->numerics;
  if (request.timing && request.spec.measure.enabled) {
    attempt->clock = watched(attempt->make_clock(request.spec.measure.mode), attempt->pulse);
  }
  if (!worked(row, attempt, &Attempt::prove_and_time)) {
    return;
  }
  add_verdict(row, *attempt->verdict);
  attempt->add_measured(row);
  if (attempt->clock) {
    judge_time(row, *attempt, targets);
    add_thresholds(row, request.thresholds);
  }
}

bool came_back(Row& row, std::function<void()> work, const Pulse& pulse, double timeout_s) {
  if (run_watched(std::move(work), pulse, timeout_s) == Ended::kReturned) {
    return true;
  }
  judge(row, Status::kHung, fmt::format("did not return within {} s", timeout_s));
  return false;
}

Verdict not_verified() {
  Verdict verdict;
  verdict.message = "not verified (verify.enabled is false)";
  return verdict;
}

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

namespace {

constexpr const char* kMeasuredAnew =
    "ceilings measured anew for this row: floors of earlier rows are of the old ones";

bool of_the_host(const Row& row) { return row.mode == "host"; }

}  // namespace

void warn_of_ceilings_anew(Row& row) { warn(row, kMeasuredAnew); }

std::int64_t rows_of_old_ceilings(const std::vector<Row>& rows) {
  if (rows.empty() || rows.back().warning.find(kMeasuredAnew) == std::string::npos) {
    return 0;
  }
  return std::count_if(rows.begin(), rows.end() - 1, [&](const Row& row) {
    return row.floor_us && of_the_host(row) == of_the_host(rows.back());
  });
}

std::string note_on_ceilings_anew(std::int64_t rows, const std::string& device) {
  return fmt::format(
      "the ceilings of {} were measured anew; {} beside the old ones: run again to "
      "compare floors",
      device,
      rows == 1 ? "1 row before this stands" : fmt::format("{} rows before this stand", rows));
}

}  // namespace lora_bench
