#pragma once

#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "report/filter.h"
#include "report/row.h"

namespace lora_bench {

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void begin(const Context& context) = 0;
  virtual void row(const Row& row) = 0;  // JSON lines and CSV flush here; throws EnvironmentError
  // A sentence below the rows, where the form has such.
  virtual void note(const std::string& /*sentence*/) {}
  virtual void finish() = 0;
};

struct TableStyle {
  int width = 0;  // 0 = unlimited
  bool colour = false;
  std::vector<std::string> columns;  // keys; empty = the default set
  std::string rank_by = {};          // as in group_rows
};

// By extension: .csv .jsonl .md .txt; any other is a UsageError naming these. The file is opened
// now, so that an unwritable place is found before work starts; one that holds anything but what
// lora-bench writes is a UsageError, not replaced. `append` continues a JSONL or CSV
// file (for --resume): a last line cut in the middle is removed, and begin() throws UsageError when
// the header (CSV) or the context (JSONL) is another one. A write that fails throws
// EnvironmentError and leaves the rows before it whole; the process must ignore SIGPIPE and SIGXFSZ
// to get there.
// `columns` and `rank_by` are those of .md and .txt; the other two keep every column and the order.
[[nodiscard]] std::unique_ptr<Sink> make_file_sink(const std::filesystem::path& path, bool append,
                                                   const std::vector<std::string>& columns = {},
                                                   const std::string& rank_by = "");
// Rendered at finish(): groups by swept key, marks the best backend of a case, colours floor ratio.
[[nodiscard]] std::unique_ptr<Sink> make_table_sink(std::ostream& out, const TableStyle& style);

[[nodiscard]] std::unique_ptr<Sink> make_markdown_sink(std::ostream& out,
                                                       const std::vector<std::string>& columns = {},
                                                       const std::string& rank_by = "");

// A results file back into memory. A last line cut in the middle is dropped and reported in
// `warnings`; any other broken line is a UsageError with file:line.
struct Results {
  std::string file;
  Context context;
  std::vector<Row> rows;
  std::vector<std::string> warnings;
  std::vector<Context> timed_on = {};  // each device of a row with a time; empty where not read
};
[[nodiscard]] Results read_results(const std::filesystem::path& file);
[[nodiscard]] Results parse_results(const std::string& text, const std::string& name);

// Rows of all, context of the first; differences between contexts become warnings.
[[nodiscard]] Results merge_results(const std::vector<Results>& files);

// Some stored rows through a sink again, with what all rows of their cases say of peers.
void render(const Results& results, const std::vector<Row>& shown, Sink& sink,
            const std::string& rank_by = "");

// rows x columns of one value: `--pivot rank x tokens --value floor_ratio`. `down` and `across` are
// columns or swept keys, `value` is a numeric column. A row that is not PASSED shows its status.
// Repeats of one measurement show their median; rows of different measurements in one cell are a
// UsageError that names the keys in which they still differ.
[[nodiscard]] std::string render_pivot(const std::vector<Row>& rows, const std::string& down,
                                       const std::string& across, const std::string& value,
                                       bool markdown);

// Every sample on a line of its own (tidy CSV): scenario,case,backend,repetition,sample,time_us.
[[nodiscard]] std::unique_ptr<Sink> make_samples_sink(const std::filesystem::path& path);

// RFC 4180 with '\n' line ends: every column of the registry but samples_us, in its order.
[[nodiscard]] const std::string& csv_header();
[[nodiscard]] std::string csv_record(const Row& row);

// Bytes up to the end of the last whole record: a newline inside quotes does not end one.
[[nodiscard]] std::size_t csv_whole_bytes(std::string_view text);

}  // namespace lora_bench
