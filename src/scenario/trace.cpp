// A trace: adapter ids as integers, separated by commas or lines; `#` starts a comment.
#include <fmt/format.h>

#include "scenario/reader.h"
#include "scenario/schema.h"
#include "scenario/settings.h"

namespace lora_bench {
namespace {

void read_line(std::string_view line, const Location& start, TraceFile& trace,
               Diagnostics& diagnostics) {
  line = line.substr(0, line.find('#'));
  std::size_t at = 0;
  while (at < line.size()) {
    const std::size_t begin = line.find_first_not_of(" \t\r,", at);
    if (begin == std::string_view::npos) {
      return;
    }
    const std::size_t end = std::min(line.find_first_of(" \t\r,", begin), line.size());
    const std::string_view word = line.substr(begin, end - begin);
    Location where = start;
    where.column = static_cast<int>(begin) + 1;
    const auto id = integer_in(word);
    if (id && *id >= -1 && *id < kMaxSlots) {
      trace.ids.push_back(static_cast<std::int32_t>(*id));
      trace.places.push_back(where);
    } else {
      diagnostics.add(where, fmt::format("'{}' in a trace", word.substr(0, 40)),
                      fmt::format("adapter ids from -1 to {}", kMaxSlots - 1));
    }
    at = end;
  }
}

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
  Location line{path->string(), 0, 0};
  const std::size_t before = diagnostics.size();
  for (std::size_t begin = 0; begin < text->size() && diagnostics.size() < before + 20;) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    ++line.line;
    read_line(std::string_view(*text).substr(begin, end - begin), line, trace, diagnostics);
    begin = end + 1;
  }
  if (trace.ids.empty() && diagnostics.size() == before) {
    diagnostics.add(where, fmt::format("trace '{}' holds no adapter id", name),
                    "integers separated by commas or lines");
  }
  return trace;
}

}  // namespace lora_bench
