#include "ops/peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <system_error>

#include "core/error.h"
#include "device/facts.h"
#include "ops/python_plugin.h"

namespace lora_bench {
namespace {

constexpr std::string_view kPrefix = "peer:";

std::filesystem::path peer_folder() { return python_modules() / "lora_bench" / "peers"; }

std::string exchanged(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

// Modules whose name begins with '_' are no peers.
std::vector<std::string> peer_names() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(peer_folder(), none)) {
    const std::string stem = entry.path().stem().string();
    if (is_python(entry.path()) && !stem.starts_with('_')) {
      names.push_back(std::string(kPrefix) + exchanged(stem, '_', '-'));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find('\t', begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace

bool names_peer(const std::string& spelling) { return spelling.starts_with(kPrefix); }

std::filesystem::path peer_file(const std::string& spelling) {
  const std::vector<std::string> known = peer_names();
  if (std::find(known.begin(), known.end(), spelling) == known.end()) {
    Diagnostic diagnostic;
    diagnostic.what = fmt::format("unknown peer '{}'", spelling);
    diagnostic.allowed = known.empty()
                             ? fmt::format(
                                   "the files of '{}', which has none; set or unset "
                                   "LORA_BENCH_SCENARIOS, beside which the folder python lies",
                                   peer_folder().string())
                             : fmt::format("{}", fmt::join(known, ", "));
    diagnostic.suggestion = nearest(spelling, known);
    throw UsageError({diagnostic});
  }
  const std::string name = spelling.substr(kPrefix.size());
  return peer_folder() / (exchanged(name, '-', '_') + ".py");
}

std::vector<PeerEntry> peer_entries() {
  const std::optional<std::vector<std::string>> told = python_says(
      "from lora_bench import peers\n"
      "for line in peers.lines(): print(*line, sep='\\t')\n");
  const std::string no_gpu = why_no_gpu();
  std::vector<PeerEntry> entries;
  for (const std::string& name : peer_names()) {
    PeerEntry entry{name, "", "no Python here answers; name one by --python or LORA_BENCH_PYTHON"};
    for (const std::string& line : told.value_or(std::vector<std::string>{})) {
      const std::vector<std::string> words = words_of(line);  // name, device, summary, why not
      if (words.size() == 4 && name == fmt::format("{}{}", kPrefix, words[0])) {
        entry.summary = words[2];
        entry.why_not_here = words[3].empty() && words[1] == "cuda" ? no_gpu : words[3];
      }
    }
    entries.push_back(entry);
  }
  return entries;
}

}  // namespace lora_bench
