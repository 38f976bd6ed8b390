#include "scenario/expand.h"

#include <algorithm>

namespace lora_bench {
namespace {

// A value without characters that a shell or a glob would take for its own.
std::string plain(const Value& value) {
  const std::string text = canonical(value);
  std::string out;
  for (const char c : text) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_' || c == '%';
    if (kept) {
      out += c;
    } else if (c == ',') {
      out += '+';
    } else if (c == ':' && value.kind == Value::Kind::kMap && value.entries.size() > 1) {
      out += ':';
    }
  }
  return out;
}

}  // namespace

CaseNamer::CaseNamer(const std::vector<std::string>& fields_in_ids) {
  for (const std::string& path : fields_in_ids) {
    const auto same = std::count_if(
        fields_in_ids.begin(), fields_in_ids.end(),
        [&](const std::string& other) { return last_part(other) == last_part(path); });
    short_names_[path] = same > 1 ? path : last_part(path);
  }
}

std::string CaseNamer::part(const Assignment& assignment) const {
  const auto& [field, value] = assignment;
  const std::string text = plain(*value);
  const std::string& name = short_names_.at(field->doc.path);
  if (field->alone_in_ids) {
    return text;
  }
  const bool number = !text.empty() && text.front() >= '0' && text.front() <= '9';
  return number ? name + text : name + "=" + text;
}

std::string CaseNamer::id(const Point& point, const std::string& fallback) const {
  std::string id = point.name;
  const auto append = [&](const std::vector<Assignment>& assignments) {
    for (const Assignment& assignment : assignments) {
      id += id.empty() ? "" : "-";
      id += part(assignment);
    }
  };
  if (point.name.empty()) {
    append(point.own);
  }
  append(point.swept);
  return id.empty() ? fallback : id;
}

std::map<std::string, std::string> point_of(const Point& point) {
  std::map<std::string, std::string> texts;
  for (const auto& [field, value] : point.swept) {
    texts[field->doc.path] = canonical(*value);
  }
  return texts;
}

}  // namespace lora_bench
