#include <doctest/doctest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "report/peers.h"
#include "report/screen.h"
#include "report/sink.h"
#include "support/near.h"
#include "support/process.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

// Three backends of one case. Back to back `linked` is the quickest, between others `plain`; of
// `older` no time between others is known.
std::vector<Row> rivals() {
  std::vector<Row> rows;
  const auto add = [&](const char* backend, double time_us, std::optional<double> alone_us) {
    Row row = fixed_rows().front();
    row.id.backend = backend;
    row.time.us = row.time.q1_us = row.time.q3_us = time_us;
    row.time.min_us = time_us - 1;
    row.time.max_us = time_us + 1;
    row.time.alone_us = alone_us;
    row.time.alone_noise_us = 0.25;
    row.time.noise_us = 0.125;
    row.time.samples_us.clear();
    derive_metrics(row);
    rows.push_back(row);
  };
  add("older", 120, std::nullopt);
  add("linked", 100, 200);
  add("plain", 150, 180);
  return rows;
}

std::string shown(const std::vector<Row>& rows, const TableStyle& style, bool markdown = false) {
  std::ostringstream out;
  const auto sink = markdown ? make_markdown_sink(out, style.columns, style.rank_by)
                             : make_table_sink(out, style);
  sink->begin(fixed_context());
  for (const Row& row : rows) {
    sink->row(row);
  }
  sink->finish();
  return out.str();
}

// Backends in the order in which they stand in a text.
std::string order_in(const std::string& text) {
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const char* backend : {"older", "linked", "plain"}) {
    found.emplace_back(text.find(std::string(" ") + backend), backend);
  }
  std::sort(found.begin(), found.end());
  std::string order;
  for (const auto& [place, backend] : found) {
    order += (order.empty() ? "" : " ") + backend;
  }
  return order;
}

}  // namespace

TEST_CASE(
    "rows stand in their order and the best by time_us is marked, unless a rank is asked for") {
  const std::string text = shown(rivals(), {});
  CHECK(order_in(text) == "older linked plain");
  CHECK(text.find("100*") != std::string::npos);
  CHECK(text.find("alone us") == std::string::npos);
}

TEST_CASE("by time_us rows of a case stand the quickest first") {
  const std::string text = shown(rivals(), {.columns = {}, .rank_by = "time_us"});
  CHECK(order_in(text) == "linked older plain");
  CHECK(text.find("100*") != std::string::npos);
}

TEST_CASE("by alone_us its column is shown, orders and marks; rows without it stand last") {
  const std::string text = shown(rivals(), {.columns = {}, .rank_by = "alone_us"});
  CHECK(order_in(text) == "plain linked older");
  CHECK(text.find("alone us") != std::string::npos);
  CHECK(text.find("180*") != std::string::npos);
  CHECK(text.find("100*") == std::string::npos);
  const std::string narrow = shown(rivals(), {.width = 60, .columns = {}, .rank_by = "alone_us"});
  CHECK(narrow.find("180*") != std::string::npos);
  const std::string page = shown(rivals(), {.columns = {}, .rank_by = "alone_us"}, true);
  CHECK(order_in(page) == "plain linked older");
  CHECK(page.find("**180**") != std::string::npos);
}

TEST_CASE("columns that were chosen are shown as chosen, in rows that are ranked") {
  const std::string text =
      shown(rivals(), {.columns = {"backend", "noise_us"}, .rank_by = "alone_us"});
  CHECK(text.find("alone us") == std::string::npos);
  CHECK(text.find("plain") < text.find("linked"));
}

TEST_CASE("files of tables are ranked, others keep the order of the run") {
  const test::TemporaryFolder folder;
  const auto written = [&](const char* file) {
    const auto sink = make_file_sink(folder.path(file), false, {}, "alone_us");
    sink->begin(fixed_context());
    for (const Row& row : rivals()) {
      sink->row(row);
    }
    sink->finish();
    std::ostringstream text;
    text << std::ifstream(folder.path(file)).rdbuf();
    return text.str();
  };
  CHECK(order_in(written("x.txt")) == "plain linked older");
  CHECK(order_in(written("x.md")) == "plain linked older");
  const std::string csv = written("x.csv");
  CHECK(csv.find(",older,") < csv.find(",linked,"));
}

TEST_CASE("speedup and who is fastest are by the time that ranks; a peer without it has none") {
  std::vector<Row> rows = rivals();
  Row quick = rows[2], older = rows[0];
  for (Row* peer : {&quick, &older}) {
    peer->id.plugin = "/lib/lora_bench/peers/some.py sha256:1";
  }
  std::vector<Row> both{rows[1], quick};
  add_speedups(both);
  CHECK(both.front().rates.speedup == near(1.5));
  CHECK(notes_on_peers(both, both).front() == "linked fastest in 1 of 1 case");
  add_speedups(both, "alone_us");
  CHECK(both.front().rates.speedup == near(0.9));
  CHECK(notes_on_peers(both, both, "alone_us").front() == "plain fastest in 1 of 1 case");
  CHECK(ranked_noise_us(rows[1], "alone_us") == 0.25);
  CHECK(ranked_noise_us(rows[1], "") == 0.125);
  both = {rows[1], older};
  add_speedups(both, "alone_us");
  CHECK_FALSE(both.front().rates.speedup.has_value());
  CHECK(notes_on_peers(both, both, "alone_us").front() == "1 case without a time of both sides");
}
