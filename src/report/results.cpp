#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
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

// What the samples of a stored row deny, beyond what any row must be (see doubts.h).
std::string doubt_about_kept_samples(const Row& row) {
  if (row.status != Status::kPassed || !row.time.us) {
    return "";
  }
  if (row.time.samples.value_or(0) > 0 && row.time.samples_us.empty()) {
    return "PASSED with a time and without the samples_us that it is the median of";
  }
  return row.time.noise_us == 0.0 && row.time.q1_us && row.time.q3_us &&
                 *row.time.q1_us < *row.time.q3_us
             ? "noise_us is 0, though the quartiles are apart"
             : "";
}

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
    if (text.size() > kLineLimit) {
      fail(fmt::format("line longer than {} bytes", kLineLimit));
    }
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) {
      return;
    }
    if (deepest_nesting(text) > kDepthLimit) {
      fail("nested too deeply to be a row");
    }
    std::string twice;
    const Json json = parse_keys_once(text, twice);
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
    if (!twice.empty()) {
      fail(fmt::format("has the key '{}' twice, so edited; delete the line to read the others",
                       twice));
    }
    try {
      take(json, seal_of_line(text.substr(0, text.find_last_not_of(" \t\r") + 1)));
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

  void take(const Json& json, Seal seal) {
    const auto kind = json.is_object() ? json.find("kind") : json.end();
    if (!json.is_object() || kind == json.end()) {
      throw UsageError("not an object with the key 'kind'");
    }
    std::vector<std::string> unknown;
    if (*kind == "context") {
      take_context(context_from_json(json, unknown));
      sealed_ = json.contains(kSealedKey);
    } else if (!has_context_) {
      throw UsageError("the first line must be the context (\"kind\": \"context\")");
    } else if (*kind == "row") {
      results_.rows.push_back(row_from_json(json, unknown));
      if (latest_.schema == 1) {
        rename_first_floor(results_.rows.back());
      }
      results_.rows.back().origin = origin_of(latest_);
      doubt(results_.rows.back(), seal);
      if (results_.rows.back().time.us) {
        add_device(results_.timed_on, latest_);
      }
    } else {
      throw UsageError("'kind' must be \"context\" or \"row\"");
    }
    for (std::string& key : unknown) {
      if (key != kSealKey && key != kSealedKey &&
          std::find(unknown_.begin(), unknown_.end(), key) == unknown_.end()) {
        unknown_.push_back(std::move(key));
      }
    }
  }

  [[nodiscard]] std::string doubt_of_stored(const Row& row) const {
    const bool nothing_to_do = row.step.bytes == 0 && row.step.flops == 0;
    const bool has_floor = row.floor.us || !row.id.peer.empty() || nothing_to_do;
    const bool timed = row.status == Status::kPassed && row.time.us;
    return latest_.schema > 1 && timed && !has_floor ? "PASSED with a time and without floor_us"
                                                     : doubt_about_stored(row);
  }

  // A row of schema 1 knows no floor that holds, only the yardstick.
  static void rename_first_floor(Row& row) {
    row.floor.stream_us = row.floor.us;
    row.floor.stream_ratio = row.floor.ratio;
    row.floor.us.reset();
    row.floor.ratio.reset();
    row.floor.bound_by.clear();
  }

  void note(const std::string& sentence) {
    Doubt& doubt = doubts_[sentence];
    doubt.line = doubt.rows++ == 0 ? number_ : doubt.line;
  }

  void doubt(Row& row, Seal seal) {
    std::string sentence = doubt_of_stored(row);
    sentence = sentence.empty() ? doubt_about_kept_samples(row) : sentence;
    if (!sentence.empty()) {
      row.doubted = true;
      note(sentence + "; no run writes that: measure the row again");
    } else if (seal == Seal::kBroken || (seal == Seal::kNone && sealed_)) {
      row.doubted = true;
      note(fmt::format("the row was changed after it was written, as its seal {}: measure it again",
                       seal == Seal::kBroken ? "is that of another line" : "is missing"));
    }
    if (const std::string other = cases_.other(row, fmt::format("line {}", number_));
        !other.empty()) {
      note(other + "; keep them in files of their own");
    }
    if (!seen_
             .emplace(row.id.scenario, row.id.case_id, row.id.backend, row.id.repetition,
                      row.step.cache, row.step.mode)
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
  bool sealed_ = false;  // whether the rows that follow have seals
  Context latest_;       // of the rows that follow
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
  const std::string why = why_no_file(file);
  std::ifstream in;
  if (why.empty()) {
    in.open(file, std::ios::binary);
  }
  if (!why.empty() || !in) {
    throw UsageError(fmt::format("cannot read '{}': {}", file.string(),
                                 why.empty() ? std::strerror(errno) : why));
  }
  Reader reader(file.string());
  std::string line;  // so far; no longer than the limit, however long the file is without a newline
  int number = 0;
  std::array<char, 65536> block{};
  while (in.read(block.data(), block.size()) || in.gcount() > 0) {
    std::string_view left(block.data(), static_cast<std::size_t>(in.gcount()));
    while (!left.empty()) {
      const std::size_t newline = left.find('\n');
      const bool complete = newline != std::string_view::npos;
      line.append(left.substr(0, newline));
      if (complete || line.size() > kLineLimit) {
        reader.line(line, ++number, true);
        line.clear();
      }
      left.remove_prefix(complete ? newline + 1 : left.size());
    }
  }
  if (!line.empty()) {
    reader.line(line, ++number, false);
  }
  return reader.finish();
}

namespace {

// Rows of one tool whose names are alike must be of one case, whichever file they are in.
void note_other_cases(Results& all, CasesByName& cases, const Results& file) {
  for (const Row& row : file.rows) {
    const std::string other = cases.other(row, file.file);
    if (!other.empty() && !other.ends_with(fmt::format("{})", file.file))) {
      all.warnings.push_back(fmt::format("{}: {} on {}: {}; report them one by one", file.file,
                                         row.id.case_id, row.id.backend, other));
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
