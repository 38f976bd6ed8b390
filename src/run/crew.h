#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "report/row.h"
#include "run/run.h"
#include "run/select.h"

namespace lora_bench {

// Processes that make the rows of one run side by side (`verify --jobs`). Each serves all backends;
// one that crashes or hangs costs the row in hand and is started again.
struct Crew {
  const RunRequest& request;
  const std::map<std::string, Selected>& selected;
  std::int64_t processes = 1;
};

// Gives each row to `take`, on this thread and in the order of `planned`. The rows of a case, which
// stand side by side there, are made in one process, so that they share its operands and expected
// values. Ends early, after the rows in hand, when `take` returns false or somebody interrupts;
// returns whether all rows were taken. Throws EnvironmentError when fresh processes find the
// machine unusable.
[[nodiscard]] bool make_rows(const Crew& crew, const std::vector<PlannedRow>& planned,
                             const std::function<bool(const PlannedRow&, const Row&)>& take);

}  // namespace lora_bench
