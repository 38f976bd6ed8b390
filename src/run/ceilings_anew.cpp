#include "run/ceilings_anew.h"

#include <fmt/format.h>

#include <algorithm>

#include "run/describe.h"

namespace lora_bench {
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
