#include "run/attempt.h"

#include <doctest/doctest.h>

#include "cli/terminal.h"
#include "support/process.h"

namespace lora_bench::test {
namespace {

Row timed(const std::string& mode) {
  Row row;
  row.status = Status::kPassed;
  row.mode = mode;
  row.floor_us = 1;
  return row;
}

TEST_CASE("a row that had the ceilings measured anew says so, and how many rows keep the old") {
  std::vector<Row> rows{timed("host"), timed("graph"), timed("host"), timed("host")};
  rows[1].warning = "noisy: a lot";
  rows[2].floor_us.reset();
  CHECK(rows_of_old_ceilings(rows) == 0);
  CHECK(rows_of_old_ceilings({}) == 0);
  rows.back().warning = "short: few steps";
  warn_of_ceilings_anew(rows.back());
  CHECK(contains(rows.back().warning, "short: few steps; ceilings measured anew"));
  CHECK(rows_of_old_ceilings(rows) == 1);
  rows.push_back(timed("host"));
  CHECK(rows_of_old_ceilings(rows) == 0);
  CHECK(note_on_ceilings_anew(1, "Machine") ==
        "the ceilings of Machine were measured anew; 1 row before this stands beside the old ones: "
        "run again to compare floors");
  CHECK(contains(note_on_ceilings_anew(2, "Machine"), "; 2 rows before this stand beside"));
}

TEST_CASE("the end of a run tells once more that its floors are of two ceilings") {
  RunReport report;
  report.rows = {timed("host")};
  report.notes = {"the ceilings of Machine were measured anew"};
  CHECK(contains(run_summary(report), "exit 0 (pass)\nthe ceilings of Machine were measured anew"));
}

}  // namespace
}  // namespace lora_bench::test
