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

// How many processes make the rows of a run whose main space this is: what was asked for or, where
// that is 0, several on a GPU whose host has cores to spare. The `cpu` backend takes all cores
// itself, and a plugin is met in one process as its author expects.
[[nodiscard]] std::int64_t jobs_of(const RunRequest& request,
                                   const std::map<std::string, Selected>& selected, Space space);

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
