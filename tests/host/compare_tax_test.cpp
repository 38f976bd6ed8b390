#include <doctest/doctest.h>

#include "compare/compare.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

// A layer whose base takes 1000 us.
Row layer(double tax_us, double tax_noise_us = 0.1) {
  Row row;
  row.id.scenario = "tax";
  row.id.case_id = "decode1-qkv";
  row.id.backend = "auto";
  row.step.op = "layer";
  row.step.content = "0123456789abcdef";
  row.step.cache = "weights-cold";
  row.step.mode = "graph";
  row.status = Status::kPassed;
  row.proof.levels = "bounded+memory";
  row.tax.base_us = 1000;
  row.tax.us = tax_us;
  row.tax.noise_us = tax_noise_us;
  row.time.us = 1000 + tax_us;
  row.time.samples_us.assign(21, *row.time.us);
  row.floor.us = 500;
  row.tax.floor_us = 1;
  return row;
}

// Each of these rows so often that a verdict is possible.
std::vector<Row> repeated(const std::vector<Row>& rows) {
  std::vector<Row> all;
  for (const Row& row : rows) {
    for (Row& repeat : repeats_like(row, 0, 8)) {
      repeat.id.repetition = std::ssize(all);
      all.push_back(std::move(repeat));
    }
  }
  return all;
}

CompareReport compared(const std::vector<Row>& before, const std::vector<Row>& after) {
  Results base, fresh;
  base.rows = repeated(before);
  fresh.rows = repeated(after);
  return compare(base, fresh, {});
}

std::string told(const std::vector<Row>& before, const std::vector<Row>& after) {
  const CompareReport report = compared(before, after);
  REQUIRE(report.rows.size() == 1);
  CHECK(report.rows.front().change == Change::kSame);
  CHECK(report.exit == ExitCode::kPass);
  const bool warned =
      std::any_of(report.warnings.begin(), report.warnings.end(), [](const std::string& warning) {
        return warning ==
               "what adapters add grew beyond the threshold and its noise in 1 row that is SAME";
      });
  CHECK(warned == !report.rows.front().reason.empty());
  return report.rows.front().reason;
}

}  // namespace

TEST_CASE("a tax that grew is told where the whole layer is the same") {
  CHECK(told({layer(2)}, {layer(4)}) ==
        "its tax grew from 2 to 4 us, which is less than the threshold of the whole layer");
  CHECK(told({layer(1200)}, {layer(1240)}) ==
        "its tax grew from 1200 to 1240 us, which is less than the threshold of the whole layer");
  CHECK(told({layer(4)}, {layer(2)}).empty());
  CHECK(told({layer(2)}, {layer(2.05, 0.01)}).empty());  // 2.5 %
  CHECK(told({layer(2)}, {layer(4, 3)}).empty());
  CHECK(told({layer(3, 2.9)}, {layer(5)}).empty());
  Row unknown = layer(2);
  unknown.tax.us.reset();
  unknown.tax.noise_us = 2.5;
  CHECK(told({unknown}, {layer(4)}).empty());
}

TEST_CASE("a layer that moved as it does without adapters is told as such") {
  const auto of_base = [](double base_us) {
    Row row = layer(20);
    row.tax.base_us = base_us;
    row.time.us = base_us + 20;
    row.time.samples_us.assign(21, *row.time.us);
    return row;
  };
  const ComparedRow slower = compared({of_base(1000)}, {of_base(1100)}).rows.front();
  CHECK(slower.change == Change::kSlower);
  CHECK(slower.reason ==
        "the layer without adapters moved too, from 1000 to 1100 us: another clock, or another "
        "base product");
  const ComparedRow faster = compared({of_base(1100)}, {of_base(1000)}).rows.front();
  CHECK(faster.change == Change::kFaster);
  CHECK(faster.reason ==
        "the layer without adapters moved too, from 1100 to 1000 us: another clock, or another "
        "base product");
  CHECK(compared({of_base(1000)}, {of_base(1010)}).rows.front().reason.empty());

  CHECK(compared({layer(2)}, {layer(200)}).rows.front().reason.empty());  // slower by its tax
  CHECK(compared({layer(200)}, {layer(2)}).rows.front().reason.empty());

  std::vector<Row> after{of_base(1050), of_base(1100), of_base(1100)};
  CHECK(compared({of_base(500)}, after).rows.front().reason.find("500 to 1100 us") !=
        std::string::npos);
}

TEST_CASE("the tax of repeats is their median, and as noisy as they are apart") {
  CHECK_FALSE(told({layer(2)}, {layer(4), layer(3.9), layer(2)}).empty());  // half of 2 us apart
  CHECK(told({layer(2)}, {layer(4), layer(3.9), layer(0.2, 0.01)}).empty());
}
