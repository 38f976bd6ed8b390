#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/row.h"

namespace lora_bench {

// All repeats of one row. A repeat is the unit that verdicts rest on: its samples were taken within
// a second, and say little about what the machine does in the next.
struct Repeats {
  Row row;  // the first, with medians over the repeats; or the one that is wrong
  std::vector<double> times_us;       // of each undisturbed repeat its median
  std::vector<double> yardsticks_us;  // of the same, where they have one
  std::int64_t disturbed = 0;         // repeats that are left out
  std::string disturbance;            // of the first of them
  std::string doubt;                  // why no verdict should rest on them; "" = nothing
};

// Rows of the same scenario, case, backend, cache and mode are repeats of one row. A repeat that
// did not pass stands for all, a wrong one before others; so does one without a time.
[[nodiscard]] std::vector<Repeats> group_repeats(const std::vector<Row>& rows);

// Precondition: not empty.
[[nodiscard]] double median_of(std::vector<double> values);

// Whether a status is exit code 2, or 4.
[[nodiscard]] bool is_wrong(Status status);
[[nodiscard]] bool is_doubtful(Status status);

}  // namespace lora_bench
