#include "run/attempt.h"

#include <fmt/format.h>

#include <utility>

#include "run/ceilings_anew.h"
#include "run/describe.h"

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
    skip(row, attempt->support.why_not);
    return;
  }
  const std::int64_t needed = attempt->needed_bytes(request.timing || request.count != nullptr);
  if (std::string why = why_no_room(needed, attempt->memory->available_bytes()); !why.empty()) {
    skip(row, std::move(why));
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
  row.status = Status::kHung;
  row.message = fmt::format("did not return within {} s", timeout_s);
  return false;
}

Verdict not_verified() {
  Verdict verdict;
  verdict.message = "not verified (verify.enabled is false)";
  return verdict;
}

void skip(Row& row, std::string why) {
  row.status = Status::kSkipped;
  row.message = std::move(why);
}

}  // namespace lora_bench
