// A trace holds adapter ids as integers: a list, separated by commas, blanks or lines, or the
// column `adapter` of a table whose first line names its columns. `#` starts a comment.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "scenario/reader.h"
#include "scenario/schema.h"
#include "scenario/settings.h"

namespace lora_bench {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kIdColumn = "adapter";
constexpr const char* kForms =
    "one id a line, all ids in one line, or a table whose first line names its columns, one of "
    "them 'adapter'";
constexpr std::size_t kMostComplaints = 20;

struct Word {
  std::string_view text;
  Location where;
};
using Line = std::vector<Word>;

// The words between the separators; between commas one may be empty.
Line words_of(std::string_view text, const Location& start, std::string_view separators) {
  Line words;
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    std::size_t begin = std::min(text.find_first_not_of(kBlanks, at), end);
    const std::string_view word = text.substr(begin, end - begin);
    Location where = start;
    where.column = static_cast<int>(begin) + 1;
    words.push_back({word.substr(0, word.find_last_not_of(kBlanks) + 1), where});
    at = end + 1;
  }
  return words;
}

// Parses the lines that hold anything.
class TraceReader {
 public:
  TraceReader(TraceFile& trace, Diagnostics& diagnostics)
      : trace_(trace), diagnostics_(diagnostics) {}

  void read(std::string_view text, Location where) {
    const std::size_t before = diagnostics_.size();
    for (std::size_t begin = 0;
         begin < text.size() && diagnostics_.size() < before + kMostComplaints;) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      ++where.line;
      const std::string_view line = text.substr(begin, end - begin);
      const std::string_view content = line.substr(0, line.find('#'));
      if (content.find_first_not_of(kBlanks) != std::string_view::npos) {
        take(content, where);
      }
      begin = end + 1;
    }
    refuse_table_without_names();
  }

 private:
  void take(std::string_view content, const Location& where) {
    const Line cells = words_of(content, where, ",");
    if (lines_++ == 0 && names_columns(cells)) {
      read_names(cells);
    } else if (columns_ > 0) {
      take_cell(cells);
    } else {
      take_list(words_of(content, where, " \t\r,"));
    }
  }

  void take_list(Line words) {
    std::erase_if(words, [](const Word& word) { return word.text.empty(); });
    if (words.empty()) {
      return;
    }
    first_ = lines_ == 1 ? words.front().where : first_;
    alike_ = alike_ && (lines_ == 1 || words.size() == words_);
    words_ = words.size();
    for (const Word& word : words) {
      take_id(word);
    }
  }

  static bool names_columns(const Line& cells) {
    return std::none_of(cells.begin(), cells.end(),
                        [](const Word& cell) { return integer_in(cell.text).has_value(); });
  }

  void read_names(const Line& cells) {
    columns_ = cells.size();
    std::vector<std::string_view> names;
    for (const Word& cell : cells) {
      names.push_back(cell.text);
    }
    const auto found = std::find(names.begin(), names.end(), kIdColumn);
    column_ = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) {
      diagnostics_.add(cells.front().where,
                       fmt::format("a trace with the columns '{:.80}'",
                                   fmt::format("{}", fmt::join(names, ", "))),
                       kForms);
    }
  }

  void take_cell(const Line& cells) {
    if (column_ == columns_) {
      return;  // which no line can mend
    }
    if (cells.size() == columns_) {
      take_id(cells[column_]);
    } else {
      diagnostics_.add(cells.front().where,
                       fmt::format("{} value{} in a trace of {} columns", cells.size(),
                                   cells.size() == 1 ? "" : "s", columns_),
                       "as many as the first line has names");
    }
  }

  void take_id(const Word& word) {
    const auto id = integer_in(word.text);
    if (id && *id >= -1 && *id < kMaxSlots) {
      trace_.ids.push_back(static_cast<std::int32_t>(*id));
      trace_.places.push_back(word.where);
    } else {
      diagnostics_.add(word.where, fmt::format("'{}' in a trace", word.text.substr(0, 40)),
                       fmt::format("adapter ids from -1 to {}", kMaxSlots - 1));
    }
  }

  // Other integers of a log would be taken for ids.
  void refuse_table_without_names() {
    if (columns_ == 0 && lines_ > 1 && alike_ && words_ > 1) {
      diagnostics_.add(first_,
                       fmt::format("{} lines of {} values each, and no line that names the columns",
                                   lines_, words_),
                       kForms);
    }
  }

  TraceFile& trace_;
  Diagnostics& diagnostics_;
  std::int64_t lines_ = 0;
  Location first_;           // of a list
  bool alike_ = true;        // whether its lines hold equally many values
  std::size_t words_ = 0;    // of its last line
  std::size_t columns_ = 0;  // of a table; 0 = it is a list
  std::size_t column_ = 0;   // of the ids
};

}  // namespace

const TraceFile& Traces::read(const std::string& name, const std::filesystem::path& folder,
                              const Location& where, Diagnostics& diagnostics) {
  const auto [entry, fresh] = files_.try_emplace(name);
  TraceFile& trace = entry->second;
  if (!fresh) {
    return trace;
  }
  const auto path = resolve_beside(name, folder, where, diagnostics);
  const auto text = path ? read_text(*path, where, diagnostics) : std::nullopt;
  if (!text) {
    return trace;
  }
  std::string_view content = *text;
  content.remove_prefix(content.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  const std::size_t before = diagnostics.size();
  TraceReader(trace, diagnostics).read(content, {path->string(), 0, 0});
  if (trace.ids.empty() && diagnostics.size() == before) {
    diagnostics.add(where, fmt::format("trace '{}' holds no adapter id", name),
                    "integers separated by commas or lines");
  }
  return trace;
}

}  // namespace lora_bench
