#include "report/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "core/sha256.h"

namespace lora_bench {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kSealDigits = 16;

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

// One more key behind those of an object; `value` is JSON.
std::string with_last_key(const std::string& object, const char* key, const std::string& value) {
  return fmt::format("{},\"{}\":{}}}", std::string_view(object).substr(0, object.size() - 1), key,
                     value);
}

std::string seal_of(const std::string& line) {
  return fmt::format("\"{}\"", sha256(line).substr(0, kSealDigits));
}

}  // namespace

std::size_t deepest_nesting(std::string_view json) {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
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

nlohmann::json parse_keys_once(std::string_view json, std::string& twice) {
  KeysOnce keys;
  Json value = Json::parse(json, std::ref(keys), false);
  twice = keys.twice();
  return value;
}

std::string with_seal(const std::string& line) {
  return with_last_key(line, kSealKey, seal_of(line));
}

std::string saying_sealed(const std::string& context_line) {
  return with_last_key(context_line, kSealedKey, "true");
}

Seal seal_of_line(std::string_view line) {
  const std::string key = fmt::format(",\"{}\":", kSealKey);
  const std::size_t at = line.rfind(key);
  if (at == std::string_view::npos) {
    return Seal::kNone;
  }
  const std::string unsealed = std::string(line.substr(0, at)) + "}";
  return with_seal(unsealed) == line ? Seal::kWhole : Seal::kBroken;
}

}  // namespace lora_bench
