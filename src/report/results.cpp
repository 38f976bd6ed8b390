#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>

#include "core/error.h"
#include "report/doubts.h"
#include "report/json_row.h"
#include "report/peers.h"
#include "report/sink.h"

namespace lora_bench {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLineLimit = std::size_t{16} << 20;
// A row is flat but for lists; the bound keeps the parser's stack safe from hostile nesting.
constexpr int kDepthLimit = 4;

std::size_t deepest_nesting(std::string_view line) {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted) {
      i += c == '\\' ? 1 : 0;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

// JSON leaves open which of two values of one key counts: what reads a file otherwise would see
// another row in it.
class KeysOnce {
 public:
  bool operator()(int /*depth*/, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == Json::parse_event_t::key &&
               !keys_.back().insert(parsed.get<std::string>()).second) {
      twice_ = parsed.get<std::string>();
    }
    return true;
  }
  [[nodiscard]] const std::string& twice() const { return twice_; }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string twice_;
};

void add_device(std::vector<Context>& devices, const Context& context) {
  if (std::none_of(devices.begin(), devices.end(),
                   [&](const Context& known) { return same_device(known, context); })) {
    devices.push_back(context);
  }
}

class Reader {
 public:
  explicit Reader(std::string file) { results_.file = std::move(file); }

  void line(std::string_view text, int number, bool complete) {
    number_ = number;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) {
      return;
    }
    if (text.size() > kLineLimit) {
      fail(fmt::format("line longer than {} bytes", kLineLimit));
    }
    if (deepest_nesting(text) > kDepthLimit) {
      fail("nested too deeply to be a row");
    }
    KeysOnce keys;
    const Json json = Json::parse(text, std::ref(keys), false);
    if (json.is_discarded()) {
      if (!has_context_ && !text.empty() && text.front() != '{') {
        fail("not JSON: lora-bench reads .jsonl files of results, and no CSV or Markdown back");
      }
      if (complete) {
        fail("not valid JSON, so cut or edited; delete the line to read the others");
      }
      results_.warnings.push_back(
          fmt::format("{}:{}: last line is cut in the middle; dropped", results_.file, number));
      return;
    }
    if (!keys.twice().empty()) {
      fail(fmt::format("has the key '{}' twice, so edited; delete the line to read the others",
                       keys.twice()));
    }
    try {
      take(json);
    } catch (const UsageError& error) {
      fail(error.what());
    }
  }

  Results finish() {
    number_ = 1;
    if (!has_context_) {
      fail("no context line; not a results file of lora-bench");
    }
    for (const std::string& key : unknown_) {
      results_.warnings.push_back(
          fmt::format("{}: key '{}' is unknown to this version; ignored", results_.file, key));
    }
    for (const auto& [sentence, where] : doubts_) {
      results_.warnings.push_back(fmt::format(
          "{}:{}: {}{}", results_.file, where.line, sentence,
          where.rows == 1 ? "" : fmt::format(" (the first of {} such rows)", where.rows)));
    }
    return std::move(results_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(fmt::format("{}:{}: {}", results_.file, number_, what));
  }

  void take(const Json& json) {
    const auto kind = json.is_object() ? json.find("kind") : json.end();
    if (!json.is_object() || kind == json.end()) {
      throw UsageError("not an object with the key 'kind'");
    }
    std::vector<std::string> unknown;
    if (*kind == "context") {
      take_context(context_from_json(json, unknown));
    } else if (!has_context_) {
      throw UsageError("the first line must be the context (\"kind\": \"context\")");
    } else if (*kind == "row") {
      results_.rows.push_back(row_from_json(json, unknown));
      if (latest_.schema == 1) {
        rename_first_floor(results_.rows.back());
      }
      results_.rows.back().origin = origin_of(latest_);
      doubt(results_.rows.back());
      if (results_.rows.back().time_us) {
        add_device(results_.timed_on, latest_);
      }
    } else {
      throw UsageError("'kind' must be \"context\" or \"row\"");
    }
    for (std::string& key : unknown) {
      if (std::find(unknown_.begin(), unknown_.end(), key) == unknown_.end()) {
        unknown_.push_back(std::move(key));
      }
    }
  }

  [[nodiscard]] std::string doubt_of_stored(const Row& row) const {
    const bool nothing_to_do = row.bytes == 0 && row.flops == 0;
    const bool has_floor = row.floor_us || !row.peer.empty() || nothing_to_do;
    const bool timed = row.status == Status::kPassed && row.time_us;
    return latest_.schema > 1 && timed && !has_floor ? "PASSED with a time and without floor_us"
                                                     : doubt_about_stored(row);
  }

  // A row of schema 1 knows no floor that holds, only the yardstick.
  static void rename_first_floor(Row& row) {
    row.stream_us = row.floor_us;
    row.stream_ratio = row.floor_ratio;
    row.floor_us.reset();
    row.floor_ratio.reset();
    row.bound_by.clear();
  }

  void note(const std::string& sentence) {
    Doubt& doubt = doubts_[sentence];
    doubt.line = doubt.rows++ == 0 ? number_ : doubt.line;
  }

  void doubt(Row& row) {
    if (const std::string sentence = doubt_of_stored(row); !sentence.empty()) {
      row.doubted = true;
      note(sentence + "; no run writes that: measure the row again");
    }
    if (const std::string other = cases_.other(row, fmt::format("line {}", number_));
        !other.empty()) {
      note(other + "; keep them in files of their own");
    }
    if (!seen_.emplace(row.scenario, row.case_id, row.backend, row.repetition, row.cache, row.mode)
             .second) {
      note("the same row once more; its samples count twice: take one out");
    }
  }

  void take_context(Context context) {
    latest_ = context;
    if (!has_context_) {
      results_.context = std::move(context);
      has_context_ = true;
      return;
    }
    for (const std::string& difference : context_differences(results_.context, context)) {
      results_.warnings.push_back(fmt::format("{}:{}: rows from here on have another context: {}",
                                              results_.file, number_, difference));
    }
  }

  struct Doubt {
    int line = 0;  // the first
    std::int64_t rows = 0;
  };

  Results results_;
  std::map<std::string, Doubt> doubts_;
  CasesByName cases_;
  std::set<
      std::tuple<std::string, std::string, std::string, std::int64_t, std::string, std::string>>
      seen_;
  bool has_context_ = false;
  Context latest_;  // of the rows that follow
  int number_ = 0;
  std::vector<std::string> unknown_;
};

}  // namespace

Results parse_results(const std::string& text, const std::string& name) {
  Reader reader(name);
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t newline = text.find('\n', begin);
    const bool complete = newline != std::string::npos;
    const std::size_t end = complete ? newline : text.size();
    reader.line(std::string_view(text).substr(begin, end - begin), ++number, complete);
    begin = end + 1;
  }
  return reader.finish();
}

Results read_results(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::error_code error;
  if (!in || std::filesystem::is_directory(file, error)) {
    throw UsageError(fmt::format("cannot read '{}': {}", file.string(),
                                 in ? "it is a folder" : std::strerror(errno)));
  }
  std::ostringstream text;
  text << in.rdbuf();
  return parse_results(text.str(), file.string());
}

namespace {

// Rows of one tool whose names are alike must be of one case, whichever file they are in.
void note_other_cases(Results& all, CasesByName& cases, const Results& file) {
  for (const Row& row : file.rows) {
    const std::string other = cases.other(row, file.file);
    if (!other.empty() && !other.ends_with(fmt::format("{})", file.file))) {
      all.warnings.push_back(fmt::format("{}: {} on {}: {}; report them one by one", file.file,
                                         row.case_id, row.backend, other));
      return;
    }
  }
}

}  // namespace

Results merge_results(const std::vector<Results>& files) {
  Results all;
  CasesByName cases;
  for (const Results& file : files) {
    note_other_cases(all, cases, file);
    if (&file == &files.front()) {
      all.file = file.file;
      all.context = file.context;
    } else {
      all.file += " + " + file.file;
      if (all.context.commit != file.context.commit) {
        all.warnings.push_back(fmt::format("{} and {}: commit differs: '{}' and '{}'",
                                           files.front().file, file.file, all.context.commit,
                                           file.context.commit));
      }
      for (const std::string& difference : context_differences(all.context, file.context)) {
        all.warnings.push_back(
            fmt::format("{} and {}: {}", files.front().file, file.file, difference));
      }
    }
    for (const Context& device : file.timed_on) {
      add_device(all.timed_on, device);
    }
    all.rows.insert(all.rows.end(), file.rows.begin(), file.rows.end());
    all.warnings.insert(all.warnings.end(), file.warnings.begin(), file.warnings.end());
  }
  return all;
}

void render(const Results& results, const std::vector<Row>& shown, Sink& sink,
            const std::string& rank_by) {
  sink.begin(results.context);
  for (const Row& row : shown) {
    sink.row(row);
  }
  for (const std::string& note : notes_on_peers(shown, results.rows, rank_by)) {
    sink.note(note);
  }
  sink.finish();
}

}  // namespace lora_bench
