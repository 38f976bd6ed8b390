#include "run/row_of.h"

#include <doctest/doctest.h>

#include "cli/terminal.h"
#include "support/outcomes.h"
#include "support/process.h"

namespace lora_bench::test {
namespace {

Row timed_in(const std::string& mode) {
  Row row;
  row.status = Status::kPassed;
  row.step.mode = mode;
  row.floor.us = 1;
  return row;
}

TEST_CASE("a row that had the ceilings measured anew says so, and how many rows keep the old") {
  std::vector<Row> rows{timed_in("host"), timed_in("graph"), timed_in("host"), timed_in("host")};
  rows[1].warning = "noisy: a lot";
  rows[2].floor.us.reset();
  CHECK(rows_of_old_ceilings(rows) == 0);
  CHECK(rows_of_old_ceilings({}) == 0);
  Measurement measurement = timed(1);
  measurement.warnings = {"short: few steps"};
  Outcome outcome = proved_and(measurement);
  outcome.ceilings_anew = true;
  rows.back().warning = row_of(CaseStep{}, outcome).warning;
  CHECK(contains(rows.back().warning, "short: few steps; ceilings measured anew"));
  CHECK(rows_of_old_ceilings(rows) == 1);
  rows.push_back(timed_in("host"));
  CHECK(rows_of_old_ceilings(rows) == 0);
  CHECK(note_on_ceilings_anew(1, "Machine") ==
        "the ceilings of Machine were measured anew; 1 row before this stands beside the old ones: "
        "run again to compare floors");
  CHECK(contains(note_on_ceilings_anew(2, "Machine"), "; 2 rows before this stand beside"));
}

TEST_CASE("the end of a run tells once more that its floors are of two ceilings") {
  RunReport report;
  report.rows = {timed_in("host")};
  report.notes = {"the ceilings of Machine were measured anew"};
  CHECK(contains(run_summary(report), "exit 0 (pass)\nthe ceilings of Machine were measured anew"));
}

}  // namespace
}  // namespace lora_bench::test
