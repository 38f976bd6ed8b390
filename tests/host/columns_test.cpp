#include <doctest/doctest.h>

#include <fmt/format.h>

#include <fstream>
#include <set>
#include <string>

#include "report/columns.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

std::string doc_line(const Column& column) {
  const std::string formula = column.formula.empty() ? "" : fmt::format("`{}`", column.formula);
  return fmt::format("| `{}` | {} | {} | {} |", column.key, column.unit, column.meaning, formula);
}

std::set<std::string> documented_lines() {
  std::ifstream file(std::string(LORA_BENCH_SOURCE_DIR) + "/docs/metrics.md");
  REQUIRE(file.good());
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `", 0) == 0) {
      lines.insert(line);
    }
  }
  return lines;
}

}  // namespace

TEST_CASE("docs/metrics.md documents every column as the registry says, and no other") {
  std::set<std::string> documented = documented_lines();
  for (const Column& column : columns()) {
    CHECK_MESSAGE(documented.erase(doc_line(column)) == 1, "missing: " << doc_line(column));
  }
  for (const std::string& line : documented) {
    FAIL_CHECK("not in the registry: " << line);
  }
}

TEST_CASE("keys are unique, and every column says what it means") {
  std::set<std::string> keys;
  for (const Column& column : columns()) {
    CHECK_MESSAGE(keys.insert(column.key).second, column.key);
    CHECK_FALSE(column.meaning.empty());
    CHECK_FALSE(column.header.empty());
    CHECK(find_column(column.key) == &column);
  }
  CHECK(find_column("no such column") == nullptr);
}

TEST_CASE("what a column sets is what it gets, and an absent cell clears it") {
  const Row drawn = random_row(3);
  const Row empty;
  for (const Column& column : columns()) {
    INFO(column.key);
    Row row;
    column.set(row, column.get(drawn));
    CHECK(column.get(row) == column.get(drawn));
    if (column.key != "status" && column.key != "add_inputs") {
      column.set(row, Cell{});
      CHECK(column.get(row) == column.get(empty));
    }
  }
}

TEST_CASE("the metrics follow from time, floor, tokens, bytes and flops") {
  Row row;
  derive_metrics(row);
  CHECK_FALSE(row.floor.ratio.has_value());
  CHECK_FALSE(row.rates.tokens_per_s.has_value());
  row.time.us = 50;
  row.floor.us = 20;
  row.step.tokens = 64;
  row.step.bytes = 40'000'000;
  row.step.flops = 500'000'000;
  derive_metrics(row);
  CHECK(*row.floor.ratio == doctest::Approx(2.5));
  CHECK(*row.rates.tokens_per_s == doctest::Approx(1.28e6));
  CHECK(*row.rates.bandwidth_GBps == doctest::Approx(800));
  CHECK(*row.rates.compute_TFLOPps == doctest::Approx(10));
}

TEST_CASE("figures are short on the screen and whole in a file") {
  const Column& time = *find_column("time_us");
  CHECK(screen_text(time, Cell{17.23456}) == "17.2");
  CHECK(screen_text(time, Cell{0.0123456}) == "0.0123");
  CHECK(screen_text(time, Cell{1234.567}) == "1235");
  CHECK(screen_text(time, Cell{}) == "");
  CHECK(screen_text(*find_column("tokens_per_s"), Cell{1.28e6}) == "1.3M");
  CHECK(screen_text(*find_column("bytes"), Cell{std::int64_t{1'500'000}}) == "1.5 MB");
  CHECK(file_text(Cell{0.1}) == "0.1");
  CHECK(file_text(Cell{17.23456}) == "17.23456");
  CHECK(file_text(Cell{std::map<std::string, std::string>{{"decode", "8"}, {"rank", "16"}}}) ==
        "decode=8,rank=16");
}
