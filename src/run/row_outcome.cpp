#include "run/row_outcome.h"

#include <fmt/format.h>

#include <utility>

#include "run/ceilings_anew.h"

namespace lora_bench {

bool came_back(Row& row, std::function<void()> work, const Pulse& pulse, double timeout_s) {
  if (run_watched(std::move(work), pulse, timeout_s) == Ended::kReturned) {
    return true;
  }
  row.status = Status::kHung;
  row.message = fmt::format("did not return within {} s", timeout_s);
  return false;
}

void judge_time(Row& row, Space space, Targets& targets,
                const std::function<void(Row&, const Ceilings&)>& add_floor) {
  const Row before = row;
  add_floor(row, targets.ceilings(space));
  bool anew = false;
  while (before.status == Status::kPassed && row.status == Status::kInvalid &&
         targets.doubt_ceilings(space)) {
    anew = true;
    row = before;
    add_floor(row, targets.ceilings(space));
  }
  if (anew) {
    warn_of_ceilings_anew(row);
  }
}

}  // namespace lora_bench
