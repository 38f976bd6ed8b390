#include <doctest/doctest.h>

#include "core/error.h"
#include "report/sink.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

std::vector<Row> first_four() {
  std::vector<Row> rows = fixed_rows();
  rows.resize(4);
  return rows;
}

}  // namespace

TEST_CASE("a pivot puts one value where its row and column meet, numbers ascending") {
  std::vector<Row> rows = first_four();
  std::swap(rows[0], rows[3]);
  CHECK(render_pivot(rows, "backend", "batch.decode", "time_us", false) ==
        "time_us (us)\n"
        "backend \\ batch.decode     8    64\n"
        "                 naive  50.5  65.0\n"
        "                   cpu  25.0  70.1\n");
  CHECK(render_pivot(rows, "tokens", "backend", "floor_ratio", true) ==
        "floor_ratio\n\n"
        "| tokens \\\\ backend | naive | cpu |\n"
        "| ---: | ---: | ---: |\n"
        "| 8 | 2.52 | 1.25 |\n"
        "| 64 | 3.25 | 3.51 |\n");
}

TEST_CASE(
    "a pivot shows the status of a row that is not PASSED and nothing where there is no row") {
  std::vector<Row> rows = fixed_rows();
  rows.erase(rows.begin() + 1);
  const std::string text = render_pivot(rows, "backend", "tokens", "time_us", true);
  CHECK(text.find("| chunked | FAILED | SKIPPED |") != std::string::npos);
  CHECK(text.find("| naive |  | 65.0 |") != std::string::npos);
}

TEST_CASE("different measurements in one cell are refused with the keys that vary") {
  CHECK_THROWS_WITH_AS(
      static_cast<void>(render_pivot(first_four(), "rank", "tokens", "time_us", false)),
      doctest::Contains("rank=16, tokens=8; they differ in backend"), UsageError);
}

TEST_CASE("repeats of one measurement show their median") {
  std::vector<Row> rows(3, fixed_rows().front());
  rows[0].time.us = 1;
  rows[2].time.us = 3;
  rows[1].time.us = 2;
  CHECK(render_pivot(rows, "backend", "tokens", "time_us", false) ==
        "time_us (us), median of repeats\n"
        "backend \\ tokens     8\n"
        "             cpu  2.00\n");
}

TEST_CASE("two repeats show what lies between them") {
  std::vector<Row> rows(2, fixed_rows().front());
  rows[0].time.us = 1;
  rows[1].time.us = 2;
  CHECK(render_pivot(rows, "backend", "tokens", "time_us", false) ==
        "time_us (us), median of repeats\n"
        "backend \\ tokens     8\n"
        "             cpu  1.50\n");
}

TEST_CASE("numbers stand in a pivot before texts, also before those that begin as one") {
  std::vector<Row> rows(3, fixed_rows().front());
  rows[0].step.ranks = "8,16";
  rows[1].step.ranks = "16";
  rows[2].step.ranks = "4";
  CHECK(render_pivot(rows, "backend", "ranks", "time_us", true) ==
        "time_us (us)\n\n"
        "| backend \\\\ ranks | 4 | 16 | 8,16 |\n"
        "| ---: | ---: | ---: | ---: |\n"
        "| cpu | 25.0 | 25.0 | 25.0 |\n");
}

TEST_CASE("unknown keys and values that are no number are refused") {
  const auto refused = [](const char* down, const char* value, const char* what) {
    CHECK_THROWS_WITH_AS(
        static_cast<void>(render_pivot(fixed_rows(), down, "tokens", value, false)),
        doctest::Contains(what), UsageError);
  };
  refused("rnak", "time_us", "did you mean 'rank'?");
  refused("backend", "time", "unknown key 'time'");
  refused("backend", "status", "'status' is text");
}
