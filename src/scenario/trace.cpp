// A trace holds adapter ids as integers: a list, separated by commas, blanks or lines, or the
// column `adapter` of a table whose first line names its columns. A trace of routing is such a
// table with the columns e0, e1 and so on, and maybe w0, w1. `#` starts a comment.
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

// Hands each line that holds anything to `take`, until there is enough to complain of.
template <typename Take>
void read_lines(std::string_view text, Location where, const Diagnostics& diagnostics,
                const Take& take) {
  const std::size_t before = diagnostics.size();
  for (std::size_t begin = 0;
       begin < text.size() && diagnostics.size() < before + kMostComplaints;) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ++where.line;
    const std::string_view line = text.substr(begin, end - begin);
    const std::string_view content = line.substr(0, line.find('#'));
    if (content.find_first_not_of(kBlanks) != std::string_view::npos) {
      take(content, where);
    }
    begin = end + 1;
  }
}

std::string names_text(const Line& names) {
  std::vector<std::string_view> texts;
  for (const Word& name : names) {
    texts.push_back(name.text);
  }
  return fmt::format("{:.80}", fmt::format("{}", fmt::join(texts, ", ")));
}

// Whether a line of a table has a value for each column; else complains.
bool is_whole(const Line& cells, std::size_t columns, Diagnostics& diagnostics) {
  if (cells.size() != columns) {
    diagnostics.add(cells.front().where,
                    fmt::format("{} value{} in a trace of {} columns", cells.size(),
                                cells.size() == 1 ? "" : "s", columns),
                    "as many as the first line has names");
  }
  return cells.size() == columns;
}

// The column of this name; as many as there are where there is none.
std::size_t column_named(const Line& names, std::string_view name) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const Word& each) { return each.text == name; });
  return static_cast<std::size_t>(found - names.begin());
}

class TraceReader {
 public:
  static constexpr const char* kHolds = "adapter id";
  static constexpr const char* kForm = "integers separated by commas or lines";

  TraceReader(TraceFile& trace, Diagnostics& diagnostics)
      : trace_(trace), diagnostics_(diagnostics) {}

  void read(std::string_view text, const Location& file) {
    read_lines(text, file, diagnostics_,
               [&](std::string_view content, const Location& where) { take(content, where); });
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
    column_ = column_named(cells, kIdColumn);
    if (column_ == columns_) {
      diagnostics_.add(cells.front().where,
                       fmt::format("a trace with the columns '{}'", names_text(cells)), kForms);
    }
  }

  void take_cell(const Line& cells) {
    if (column_ == columns_) {
      return;  // which no line can mend
    }
    if (is_whole(cells, columns_, diagnostics_)) {
      take_id(cells[column_]);
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

// Reads a table of what a router said, a line a token.
class RoutingTraceReader {
 public:
  static constexpr const char* kHolds = "token";
  static constexpr const char* kForm = "a line for each token below the names of the columns";

  RoutingTraceReader(RoutingTraceFile& trace, Diagnostics& diagnostics)
      : trace_(trace), diagnostics_(diagnostics) {}

  void read(std::string_view text, const Location& file) {
    read_lines(text, file, diagnostics_, [&](std::string_view content, const Location& where) {
      const Line cells = words_of(content, where, ",");
      if (columns_ == 0) {
        read_names(cells);
      } else if (!experts_.empty() && is_whole(cells, columns_, diagnostics_)) {
        take(cells);
      }
    });
  }

 private:
  // The columns e0, e1 and so on, for the letter e.
  static std::vector<std::size_t> columns_of(const Line& names, char letter) {
    std::vector<std::size_t> columns;
    for (;;) {
      const std::size_t column = column_named(names, fmt::format("{}{}", letter, columns.size()));
      if (column == names.size()) {
        return columns;
      }
      columns.push_back(column);
    }
  }

  void read_names(const Line& names) {
    columns_ = names.size();
    experts_ = columns_of(names, 'e');
    weights_ = columns_of(names, 'w');
    if (experts_.empty() || (!weights_.empty() && weights_.size() != experts_.size())) {
      diagnostics_.add(
          names.front().where,
          fmt::format("a trace of routing with the first line '{}'", names_text(names)),
          "the names of its columns, among them e0, e1 and so on, the experts of a "
          "token, and w0, w1 and so on where it has their weights");
      experts_.clear();
    }
  }

  void take(const Line& cells) {
    const std::size_t before = diagnostics_.size();
    RoutedToken token;
    for (const std::size_t column : experts_) {
      take_expert(cells[column], token.experts);
    }
    for (const std::size_t column : weights_) {
      take_weight(cells[column], token.weights);
    }
    if (diagnostics_.size() == before) {
      trace_.tokens.push_back(std::move(token));
      trace_.places.push_back(cells.front().where);
    }
  }

  void take_expert(const Word& word, std::vector<std::int32_t>& experts) {
    const auto expert = integer_in(word.text);
    if (!expert || *expert < -1 || *expert >= kMaxExperts) {
      complain(word, fmt::format("experts from -1, which is elsewhere, to {}", kMaxExperts - 1));
      return;
    }
    const auto id = static_cast<std::int32_t>(*expert);
    if (id >= 0 && std::find(experts.begin(), experts.end(), id) != experts.end()) {
      diagnostics_.add(word.where, fmt::format("expert {} twice in a line", id),
                       "experts of a token that are all different");
    }
    experts.push_back(id);
  }

  void take_weight(const Word& word, std::vector<float>& weights) {
    constexpr double kMost = 65536;
    const auto weight = real_in(word.text);
    if (!weight || *weight < -kMost || *weight > kMost) {
      complain(word, fmt::format("weights from {} to {}", -kMost, kMost));
      return;
    }
    weights.push_back(static_cast<float>(*weight));
  }

  void complain(const Word& word, const std::string& allowed) {
    diagnostics_.add(word.where, fmt::format("'{}' in a trace of routing", word.text.substr(0, 40)),
                     allowed);
  }

  RoutingTraceFile& trace_;
  Diagnostics& diagnostics_;
  std::size_t columns_ = 0;  // 0: the first line is still to come
  std::vector<std::size_t> experts_, weights_;
};

// Reads the file into `trace` with a `TheReader`, and complains where nothing was in it.
template <typename TheReader, typename Trace>
void read_trace(const std::string& name, const std::filesystem::path& folder, const Location& where,
                Diagnostics& diagnostics, Trace& trace) {
  const auto path = resolve_beside(name, folder, where, diagnostics);
  const auto text = path ? read_text(*path, where, diagnostics) : std::nullopt;
  if (!text) {
    return;
  }
  std::string_view content = *text;
  content.remove_prefix(content.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  const std::size_t before = diagnostics.size();
  TheReader(trace, diagnostics).read(content, {path->string(), 0, 0});
  if (trace.places.empty() && diagnostics.size() == before) {
    diagnostics.add(where, fmt::format("trace '{}' holds no {}", name, TheReader::kHolds),
                    TheReader::kForm);
  }
}

}  // namespace

const TraceFile& Traces::read(const std::string& name, const std::filesystem::path& folder,
                              const Location& where, Diagnostics& diagnostics) {
  const auto [entry, fresh] = files_.try_emplace(name);
  if (fresh) {
    read_trace<TraceReader>(name, folder, where, diagnostics, entry->second);
  }
  return entry->second;
}

const RoutingTraceFile& RoutingTraces::read(const std::string& name,
                                            const std::filesystem::path& folder,
                                            const Location& where, Diagnostics& diagnostics) {
  const auto [entry, fresh] = files_.try_emplace(name);
  if (fresh) {
    read_trace<RoutingTraceReader>(name, folder, where, diagnostics, entry->second);
  }
  return entry->second;
}

}  // namespace lora_bench
