#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "report/columns.h"
#include "report/json_row.h"
#include "report/screen.h"
#include "report/sink.h"
#include "support/golden.h"
#include "support/need_gpu.h"
#include "support/process.h"
#include "support/rows.h"

using namespace lora_bench;
namespace fs = std::filesystem;

namespace {

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void append(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

void write_rows(const fs::path& path, bool continued, std::size_t first, std::size_t count) {
  const std::unique_ptr<Sink> sink = make_file_sink(path, continued);
  sink->begin(fixed_context());
  for (std::size_t i = first; i < first + count; ++i) {
    sink->row(fixed_rows()[i]);
  }
  sink->finish();
}

std::string written(const char* name) {
  const test::TemporaryFolder folder;
  write_rows(folder.path(name), false, 0, fixed_rows().size());
  return contents(folder.path(name));
}

std::string table(const std::vector<Row>& rows, const TableStyle& style) {
  std::ostringstream out;
  const std::unique_ptr<Sink> sink = make_table_sink(out, style);
  sink->begin(fixed_context());
  for (const Row& row : rows) {
    sink->row(row);
  }
  sink->finish();
  return out.str();
}

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) {
    longest = std::max(longest, line.size());
  }
  return longest;
}

// Fields of one RFC 4180 record; a second formulation, so that the writer is not its own judge.
std::vector<std::string> csv_fields(const std::string& record) {
  std::vector<std::string> fields(1);
  bool inside = false;
  for (std::size_t i = 0; i + 1 < record.size(); ++i) {
    const char c = record[i];
    if (inside && c == '"' && record[i + 1] == '"') {
      fields.back() += '"';
      ++i;
    } else if (c == '"') {
      inside = !inside;
    } else if (c == ',' && !inside) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

}  // namespace

TEST_CASE("every sink writes what its golden file holds") {
  check_golden("rows.jsonl", written("x.jsonl"));
  check_golden("rows.csv", written("x.csv"));
  check_golden("rows.md", written("x.md"));
  check_golden("table.txt", written("x.txt"));
  check_golden("table_narrow.txt",
               table(fixed_rows(), {.width = 60, .colour = false, .columns = {}}));
  check_golden("table_colour.txt",
               table(fixed_rows(), {.width = 0, .colour = true, .columns = {}}));
  check_golden("table_columns.txt",
               table(fixed_rows(), {.width = 0,
                                    .colour = false,
                                    .columns = {"batch.decode", "backend", "bytes", "warning"}}));
}

TEST_CASE("a table never exceeds the width and always shows case, backend, status and time") {
  std::vector<Row> rows;
  for (int i = 0; i < 500; ++i) {
    rows.push_back(fixed_rows()[static_cast<std::size_t>(i) % 6]);
    rows.back().id.case_id = "a/very/long/case/id/of/a/wide/sweep/" + std::to_string(i / 4);
  }
  for (const int width : {1, 20, 40, 60, 80, 100, 200}) {
    for (const std::size_t count : {std::size_t{1}, rows.size()}) {
      const std::string text = table({rows.begin(), rows.begin() + static_cast<long>(count)},
                                     {.width = width, .colour = false, .columns = {}});
      INFO("width " << width);
      CHECK(longest_line(text) <= static_cast<std::size_t>(width));
      if (width >= 60) {
        for (const char* header : {"case", "backend", "status", "time us"}) {
          CHECK(text.find(header) != std::string::npos);
        }
      }
    }
  }
}

TEST_CASE("a table marks the fastest passed backend of a case, and only among several") {
  std::vector<Row> rows = fixed_rows();
  const std::string text = table(rows, {});
  CHECK(text.find("25.0*") != std::string::npos);
  CHECK(text.find("65.0*") != std::string::npos);
  CHECK(text.find("50.5*") == std::string::npos);
  CHECK(table({rows[0], rows[4]}, {}).find("25.0*") == std::string::npos);
  rows[0].status = Status::kInvalid;
  CHECK(table(rows, {}).find("25.0*") == std::string::npos);
}

TEST_CASE("repetitions of one backend are no rivals: none is marked best") {
  std::vector<Row> rows{fixed_rows()[0], fixed_rows()[0]};
  rows[1].id.repetition = 1;
  rows[1].time.us = 30;
  CHECK(table(rows, {}).find('*') == std::string::npos);
  rows[1].id.backend = "naive";
  CHECK(table(rows, {}).find("25.0*") != std::string::npos);
}

TEST_CASE("a row that warns of one kind twice counts once") {
  std::vector<Row> rows{fixed_rows()[0]};
  rows[0].warning = "throttled: a; throttled: b";
  const std::string name = rows[0].id.case_id + " " + rows[0].id.backend;
  CHECK(table(rows, {}).find("warning: 1 row: throttled: a [" + name + "]\n") != std::string::npos);
  rows.push_back(rows[0]);
  CHECK(table(rows, {}).find("warning: 2 rows, the first: throttled: a [" + name + "]\n") !=
        std::string::npos);
}

TEST_CASE("a kind of warning is one line whatever its figures, with its count and rows") {
  std::vector<Row> rows(5, fixed_rows()[0]);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].id.case_id = "o" + std::to_string(i);
    rows[i].id.backend = "auto";
    rows[i].warning = fmt::format("tax < noise ({}.5 us)", i);
  }
  rows[1].warning += "; limit reached after 3 samples: too few to know the median";
  rows[4].warning += "; limit reached after 4 samples: too few to know the median";
  const std::vector<std::string> lines = count_by_warning(rows);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] ==
        "2 rows, the first: limit reached after 3 samples: too few to know the median [o1 auto, o4 "
        "auto]");
  CHECK(lines[1] ==
        "5 rows, the first: tax < noise (0.5 us) [o0 auto, o1 auto, o2 auto and 2 more]");
}

TEST_CASE("a table names the columns that its width left no place for") {
  const std::string wide = table(fixed_rows(), {.width = 200, .colour = false, .columns = {}});
  CHECK(wide.find("hidden:") == std::string::npos);
  const TableStyle narrow{.width = 60,
                          .colour = false,
                          .columns = {"case", "time_us", "warning", "floor_ratio", "repro"}};
  const std::string text = table(fixed_rows(), narrow);
  CHECK(text.find("(wider terminal, or --columns)") != std::string::npos);
  for (const std::string& key : narrow.columns) {
    const View view = choose_views(fixed_rows(), {key}).front();
    const std::size_t last = text.find("hidden:");
    const bool shown = text.find(view.header) < last;
    const bool told = text.find(key, last) != std::string::npos;
    INFO(key);
    CHECK(shown != told);
  }
}

TEST_CASE("an unknown column of a table is refused with the nearest") {
  std::ostringstream out;
  CHECK_THROWS_WITH_AS(static_cast<void>(make_table_sink(out, {0, false, {"floor_ration"}})),
                       doctest::Contains("did you mean 'floor_ratio'?"), UsageError);
}

TEST_CASE("a slip in the first word of a column is understood without its unit") {
  CHECK_THROWS_WITH_AS(check_view_keys({"tiem"}), doctest::Contains("did you mean 'time_us'?"),
                       UsageError);
  CHECK_THROWS_WITH_AS(check_view_keys({"zzzzzz"}), doctest::Contains("unknown column"),
                       UsageError);
}

TEST_CASE("CSV fields read back as the file text of their cells") {
  const std::vector<std::string> header = csv_fields(csv_header());
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Row row = random_row(seed);
    const std::vector<std::string> fields = csv_fields(csv_record(row));
    REQUIRE(fields.size() == header.size());
    for (std::size_t i = 0; i < fields.size(); ++i) {
      INFO(header[i]);
      CHECK(fields[i] == file_text(cell_of(row, header[i])));
    }
  }
}

TEST_CASE("a figure in a file reads back as the same number") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Row row = random_row(seed);
    if (row.time.us) {
      CHECK(std::strtod(file_text(Cell{*row.time.us}).c_str(), nullptr) == *row.time.us);
    }
  }
}

TEST_CASE("a continued file is the file of one run, also after a cut in the middle of a row") {
  const std::vector<std::pair<std::string, std::string>> cuts{{"x.jsonl", ""},
                                                              {"x.jsonl", "{\"kind\":\"ro"},
                                                              {"x.csv", ""},
                                                              {"x.csv", "decode,qk"},
                                                              {"x.csv", "decode,\"qk\nv"}};
  for (const auto& cut : cuts) {
    INFO(cut.first << " cut: " << cut.second);
    const test::TemporaryFolder folder;
    const fs::path path = folder.path(cut.first);
    write_rows(path, true, 0, 2);
    append(path, cut.second);
    write_rows(path, true, 2, fixed_rows().size() - 2);
    CHECK(contents(path) == written(cut.first.c_str()));
  }
}

TEST_CASE("JSON lines without the last newline are continued on a new line") {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path("x.jsonl");
  write_rows(path, false, 0, 2);
  fs::resize_file(path, fs::file_size(path) - 1);
  write_rows(path, true, 2, fixed_rows().size() - 2);
  CHECK(contents(path) == written("x.jsonl"));
}

TEST_CASE("a file of another machine or of other columns is not continued") {
  const test::TemporaryFolder folder;
  write_rows(folder.path("x.jsonl"), false, 0, 2);
  Context other = fixed_context();
  other.device_name = "Another CPU";
  const std::unique_ptr<Sink> json = make_file_sink(folder.path("x.jsonl"), true);
  CHECK_THROWS_WITH_AS(json->begin(other), doctest::Contains("device differs"), UsageError);

  append(folder.path("x.csv"), "scenario,case\n");
  const std::unique_ptr<Sink> csv = make_file_sink(folder.path("x.csv"), true);
  CHECK_THROWS_AS(csv->begin(fixed_context()), UsageError);
  CHECK(contents(folder.path("x.csv")) == "scenario,case\n");
}

TEST_CASE("a place that cannot be written is found when the sink is made") {
  CHECK_THROWS_WITH_AS(static_cast<void>(make_file_sink("/no/such/folder/x.csv", false)),
                       "cannot open '/no/such/folder/x.csv': No such file or directory",
                       EnvironmentError);
  CHECK_THROWS_WITH_AS(static_cast<void>(make_file_sink("x.xlsx", false)),
                       doctest::Contains(".csv, .jsonl, .md, .txt"), UsageError);
  CHECK_THROWS_AS(static_cast<void>(make_file_sink("x.md", true)), UsageError);
}

TEST_CASE("a file that lora-bench did not write is not replaced, one of its own is") {
  const test::TemporaryFolder folder;
  for (const char* name : {"x.jsonl", "x.csv", "x.md"}) {
    CAPTURE(name);
    const std::string notes = "# My notes\n\nscenario and case, by hand\n";
    const std::string path = folder.write(name, notes);
    CHECK_THROWS_WITH_AS(static_cast<void>(make_file_sink(path, false)),
                         doctest::Contains("it was not written by lora-bench: name another file"),
                         UsageError);
    CHECK(contents(path) == notes);
    folder.write(name, "");
    for (int turn = 0; turn < 2; ++turn) {
      const std::unique_ptr<Sink> sink = make_file_sink(path, false);
      sink->begin(fixed_context());
      sink->finish();
    }
    CHECK(contents(path).size() > 10);
  }
}

TEST_CASE("a full disk is an error that names the file") {
  LORA_BENCH_NEED(fs::exists("/dev/full") ? "" : "no /dev/full here")
  const test::TemporaryFolder folder;
  fs::create_symlink("/dev/full", folder.path("full.csv"));
  const std::unique_ptr<Sink> sink = make_file_sink(folder.path("full.csv"), false);
  CHECK_THROWS_WITH_AS(sink->begin(fixed_context()),
                       doctest::Contains("full.csv': No space left on device"), EnvironmentError);
}

TEST_CASE("a write that fails in the middle of a row leaves the rows before it whole") {
  for (const char* name : {"x.jsonl", "x.csv"}) {
    const test::TemporaryFolder folder;
    const std::unique_ptr<Sink> sink = make_file_sink(folder.path(name), false);
    sink->begin(fixed_context());
    sink->row(fixed_rows()[0]);
    const std::string before = contents(folder.path(name));

    rlimit old{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
    const auto old_handler = signal(SIGXFSZ, SIG_IGN);
    const rlimit tight{before.size() + 100, old.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
    std::string message;
    try {
      sink->row(fixed_rows()[1]);
    } catch (const EnvironmentError& error) {
      message = error.what();
    }
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, old_handler);
    CHECK(message.find("File too large") != std::string::npos);
    CHECK(contents(folder.path(name)) == before);
  }
}
