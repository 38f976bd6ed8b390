#include <fmt/format.h>
#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "report/columns.h"
#include "report/json_row.h"
#include "report/output_file.h"
#include "report/sink.h"

namespace lora_bench {

namespace {

class JsonLinesSink : public Sink {
 public:
  JsonLinesSink(const std::filesystem::path& path, bool append)
      : file_(path, append), append_(append) {}

  void begin(const Context& context) override {
    if (!append_ || !continues(context)) {
      file_.write(saying_sealed(to_json_line(context)) + '\n');
    }
  }
  // A row in doubt gets no seal, as one would hide the doubt.
  void row(const Row& row) override {
    const std::string line = to_json_line(row);
    file_.write((row.doubted ? line : with_seal(line)) + '\n');
  }
  void finish() override { file_.close(); }

 private:
  // False when there is nothing whole to continue.
  bool continues(const Context& context) {
    const std::string text = file_.read_all();
    const std::size_t first_newline = text.find('\n');
    if (first_newline == std::string::npos) {
      file_.truncate(0);
      return false;
    }
    const Results stored = parse_results(text, file_.path().string());
    const std::vector<std::string> differences = context_differences(stored.context, context);
    if (!differences.empty()) {
      throw UsageError(fmt::format("cannot continue '{}': {}", file_.path().string(),
                                   fmt::join(differences, "; ")));
    }
    if (text.back() != '\n') {
      complete_last_line(text);
    }
    return true;
  }

  void complete_last_line(const std::string& text) {
    const std::size_t last = text.rfind('\n') + 1;
    if (is_json(text.substr(last))) {
      file_.write("\n");
    } else {
      file_.truncate(static_cast<std::int64_t>(last));
    }
  }

  OutputFile file_;
  bool append_;
};

class CsvSink : public Sink {
 public:
  CsvSink(const std::filesystem::path& path, bool append) : file_(path, append), append_(append) {}

  void begin(const Context& /*context*/) override {
    if (!append_ || !continues()) {
      file_.write(csv_header());
    }
  }
  void row(const Row& row) override { file_.write(csv_record(row)); }
  void finish() override { file_.close(); }

 private:
  bool continues() {
    const std::string text = file_.read_all();
    const std::size_t whole = csv_whole_bytes(text);
    file_.truncate(static_cast<std::int64_t>(whole));
    if (whole == 0) {
      return false;
    }
    if (text.compare(0, csv_header().size(), csv_header()) != 0) {
      throw UsageError(fmt::format(
          "cannot continue '{}': its columns are not the ones of this version; write a file of "
          "its own with --out",
          file_.path().string()));
    }
    return true;
  }

  OutputFile file_;
  bool append_;
};

// Markdown and text are laid out when all rows are there.
class RenderedSink : public Sink {
 public:
  RenderedSink(const std::filesystem::path& path, const std::vector<std::string>& columns,
               const std::string& rank_by)
      : file_(path, false),
        inner_(path.extension() == ".md"
                   ? make_markdown_sink(text_, columns, rank_by)
                   : make_table_sink(
                         text_,
                         {.width = 0, .colour = false, .columns = columns, .rank_by = rank_by})) {}

  void begin(const Context& context) override { inner_->begin(context); }
  void row(const Row& row) override { inner_->row(row); }
  void note(const std::string& sentence) override { inner_->note(sentence); }
  void finish() override {
    inner_->finish();
    file_.write(text_.str());
    file_.close();
  }

 private:
  OutputFile file_;
  std::ostringstream text_;
  std::unique_ptr<Sink> inner_;
};

// What stands first in a file of ours, whatever its version; "" where nothing tells.
std::string_view first_words(const std::string& extension) {
  return extension == ".jsonl" ? R"({"kind":)"
         : extension == ".csv" ? "scenario,case,"
         : extension == ".md"  ? "# lora-bench "
                               : "";
}

// Whoever mistypes a name must not lose what somebody wrote there.
void refuse_to_replace_others(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::is_empty(path, none)) {
    return;
  }
  const std::string_view wanted = first_words(path.extension().string());
  std::string found(wanted.size(), '\0');
  std::ifstream(path, std::ios::binary).read(found.data(), std::ssize(found));
  if (found != wanted) {
    throw UsageError(fmt::format(
        "'{}' would be replaced, and it was not written by lora-bench: name another file, or "
        "remove it",
        path.string()));
  }
}

}  // namespace

std::unique_ptr<Sink> make_file_sink(const std::filesystem::path& path, bool append,
                                     const std::vector<std::string>& columns,
                                     const std::string& rank_by) {
  const std::string extension = path.extension().string();
  if (!append) {
    refuse_to_replace_others(path);
  }
  if (extension == ".jsonl") {
    return std::make_unique<JsonLinesSink>(path, append);
  }
  if (extension == ".csv") {
    return std::make_unique<CsvSink>(path, append);
  }
  if (extension != ".md" && extension != ".txt") {
    throw UsageError(fmt::format(
        "cannot tell the format of '{}' from its name; allowed: .csv, .jsonl, .md, .txt",
        path.string()));
  }
  if (append) {
    throw UsageError(
        fmt::format("cannot continue '{}': only .jsonl and .csv can be continued", path.string()));
  }
  return std::make_unique<RenderedSink>(path, columns, rank_by);
}

namespace {

std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) {
    return field;
  }
  std::string text = "\"";
  for (const char c : field) {
    if (c == '"') {
      text += '"';
    }
    text += c;
  }
  text += '"';
  return text;
}

template <class FieldOf>
std::string record(FieldOf&& field_of) {
  std::string text;
  for (const Column& column : columns()) {
    if (column.type != CellType::kFigures) {
      text += quoted(field_of(column));
      text += ',';
    }
  }
  text.back() = '\n';
  return text;
}

}  // namespace

const std::string& csv_header() {
  static const std::string header = record([](const Column& column) { return column.key; });
  return header;
}

std::string csv_record(const Row& row) {
  return record([&](const Column& column) { return file_text(column.get(row)); });
}

std::size_t csv_whole_bytes(std::string_view text) {
  std::size_t whole = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      inside = !inside;
    } else if (text[i] == '\n' && !inside) {
      whole = i + 1;
    }
  }
  return whole;
}

namespace {

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

class SamplesSink final : public Sink {
 public:
  explicit SamplesSink(const std::filesystem::path& path) : file_(path, false) {}
  void begin(const Context& /*context*/) override {
    file_.write("scenario,case,backend,repetition,sample,time_us\n");
  }
  void row(const Row& row) override {
    std::string lines;
    for (std::size_t i = 0; i < row.time.samples_us.size(); ++i) {
      lines += fmt::format("{},{},{},{},{},{}\n", csv_quoted(row.id.scenario),
                           csv_quoted(row.id.case_id), csv_quoted(row.id.backend),
                           row.id.repetition, i, row.time.samples_us[i]);
    }
    file_.write(lines);
  }
  void finish() override { file_.close(); }

 private:
  OutputFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_samples_sink(const std::filesystem::path& path) {
  return std::make_unique<SamplesSink>(path);
}

}  // namespace lora_bench
