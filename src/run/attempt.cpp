#include "run/attempt.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "measure/lone_launch.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

// Nothing when `work` came back; it keeps alive what it works on.
std::optional<Finding> hung(std::function<void()> work, const Pulse& pulse, double timeout_s) {
  return run_watched(std::move(work), pulse, timeout_s) == Ended::kReturned
             ? std::nullopt
             : std::optional<Finding>(
                   {Status::kHung, fmt::format("did not return within {} s", timeout_s)});
}

std::optional<Finding> hung(const std::shared_ptr<Attempt>& attempt, void (Attempt::*work)()) {
  return hung([attempt, work] { ((*attempt).*work)(); }, *attempt->pulse,
              attempt->spec.verify.timeout_s);
}

// A time below the floor counts against the kernel only when the ceilings were looked at again.
Outcome held_to_ceilings(Outcome outcome, const CaseRequest& request, const CaseStep& step,
                         Space space, Targets& targets) {
  const auto status = [&] { return row_of(request, step, outcome).status; };
  const bool passed = status() == Status::kPassed;
  outcome.ceilings = targets.ceilings(space);
  while (passed && status() == Status::kInvalid && targets.doubt_ceilings(space)) {
    outcome.ceilings = targets.ceilings(space);
    outcome.ceilings_anew = true;
  }
  return outcome;
}

}  // namespace

Attempt::Attempt(const CaseRequest& request, Targets& targets)
    : spec(request.spec),
      space(request.backend.backend->space()),
      facts(targets.facts(space)),
      relations(request.relations || request.spec.verify.relations) {}

void run_attempt(Outcome& outcome, const std::shared_ptr<Attempt>& attempt,
                 const CaseRequest& request, const CaseStep& step, Targets& targets) {
  outcome.layer = attempt->outcome.layer;
  outcome.end = hung(attempt, &Attempt::ask);
  if (outcome.end) {
    return;
  }
  attempt->asked(targets);
  if (!attempt->support.yes) {
    outcome.end = {Status::kSkipped, attempt->support.why_not};
    return;
  }
  const std::int64_t needed = attempt->needed_bytes(request.timing || request.count != nullptr);
  if (std::string why = why_no_room(needed, attempt->memory->available_bytes()); !why.empty()) {
    outcome.end = {Status::kSkipped, std::move(why)};
    return;
  }
  outcome.numerics = attempt->outcome.numerics;
  if (request.timing && request.spec.measure.enabled) {
    attempt->clock = watched(attempt->make_clock(request.spec.measure.mode), attempt->pulse);
  }
  outcome.end = hung(attempt, &Attempt::prove_and_time);
  if (outcome.end) {
    return;
  }
  outcome = attempt->outcome;
  outcome.first_call_s = attempt->pulse->first_launch_seconds();
  if (attempt->clock) {
    outcome = held_to_ceilings(outcome, request, step, attempt->space, targets);
  }
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

Counted count_launch(const Problem& problem, const CaseRequest& request, Targets& targets) {
  const Space space = request.backend.backend->space();
  const auto counted = std::make_shared<CountedLaunch>(request.spec, problem);
  counted->backend = watched(request.backend.backend, counted->pulse);
  counted->memory = watched(plain_memory(space, targets), counted->pulse);
  counted->facts = targets.facts(space);
  counted->count = request.count;
  if (auto end =
          hung([counted] { count(*counted); }, *counted->pulse, request.spec.verify.timeout_s)) {
    end->message += " when one launch was counted";
    return {.end = std::move(end)};
  }
  return {counted->counters, counted->failed, {}};
}

}  // namespace lora_bench
