#include "report/json_row.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <variant>
#include <vector>

#include "core/bytes.h"
#include "core/error.h"
#include "report/columns.h"

namespace lora_bench {

namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

std::string dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson to_json(const Cell& cell) {
  return std::visit(
      [](const auto& value) -> OrderedJson {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else {
          return value;
        }
      },
      cell);
}

[[noreturn]] void refuse(std::string_view key, std::string_view wanted, const Json& got) {
  throw UsageError(fmt::format("key '{}' must be {}, not {}", key, wanted, got.type_name()));
}

std::int64_t read_count(std::string_view key, const Json& json) {
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) {
    throw UsageError(fmt::format("key '{}' is larger than {}", key, INT64_MAX));
  }
  if (!json.is_number_integer()) {
    refuse(key, "an integer", json);
  }
  return json.get<std::int64_t>();
}

double read_figure(std::string_view key, const Json& json) {
  if (json.is_null()) {
    return std::nan("");
  }
  if (!json.is_number()) {
    refuse(key, "a number", json);
  }
  return json.get<double>();
}

std::string read_text(std::string_view key, const Json& json) {
  if (!json.is_string()) {
    refuse(key, "a string", json);
  }
  return json.get<std::string>();
}

bool read_flag(std::string_view key, const Json& json) {
  if (!json.is_boolean()) {
    refuse(key, "true or false", json);
  }
  return json.get<bool>();
}

std::vector<std::string> read_texts(std::string_view key, const Json& json) {
  if (!json.is_array()) {
    refuse(key, "an array of strings", json);
  }
  std::vector<std::string> texts;
  for (const Json& item : json) {
    texts.push_back(read_text(key, item));
  }
  return texts;
}

std::vector<double> read_figures(std::string_view key, const Json& json) {
  if (!json.is_array()) {
    refuse(key, "an array of numbers", json);
  }
  std::vector<double> figures;
  for (const Json& item : json) {
    figures.push_back(read_figure(key, item));
  }
  return figures;
}

std::map<std::string, std::string> read_pairs(std::string_view key, const Json& json) {
  if (!json.is_object()) {
    refuse(key, "an object of strings", json);
  }
  std::map<std::string, std::string> pairs;
  for (const auto& [name, value] : json.items()) {
    pairs[name] = read_text(key, value);
  }
  return pairs;
}

Cell read_cell(const Column& column, const Json& json) {
  if (json.is_null()) {
    return {};
  }
  switch (column.type) {
    case CellType::kFlag:
      return read_flag(column.key, json);
    case CellType::kCount:
      return read_count(column.key, json);
    case CellType::kFigure:
      return read_figure(column.key, json);
    case CellType::kText:
      return read_text(column.key, json);
    case CellType::kTexts:
      return read_texts(column.key, json);
    case CellType::kFigures:
      return read_figures(column.key, json);
    case CellType::kPairs:
      return read_pairs(column.key, json);
  }
  throw std::logic_error("cell type outside the enumeration");
}

// One visit for writing and reading, so that a field of Context cannot be in one of them only.
template <class Context_, class Visitor>
void visit_context(Context_& context, Visitor&& visit) {
  visit("tool_version", context.tool_version);
  visit("commit", context.commit);
  visit("dirty", context.dirty);
  visit("build", context.build);
  visit("compiler", context.compiler);
  visit("cuda_compiler", context.cuda_compiler);
  visit("device_kind", context.device_kind);
  visit("device_name", context.device_name);
  visit("device_identity", context.device_identity);
  visit("driver", context.driver);
  visit("runtime", context.runtime);
  visit("compute_capability", context.compute_capability);
  visit("multiprocessors", context.multiprocessors);
  visit("cache_bytes", context.cache_bytes);
  visit("memory_bytes", context.memory_bytes);
  visit("clock_mhz_max", context.clock_mhz_max);
  visit("host", context.host);
  visit("cpu", context.cpu);
  visit("started_utc", context.started_utc);
  visit("argv", context.argv);
  visit("scenario_hash", context.scenario_hash);
  visit("seed", context.seed);
}

struct ContextReader {
  const Json& json;
  std::vector<std::string> known{"kind", "schema"};

  const Json* find(const char* key) {
    known.emplace_back(key);
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
  void operator()(const char* key, std::string& field) {
    if (const Json* value = find(key))
      field = read_text(key, *value);
  }
  void operator()(const char* key, bool& field) {
    if (const Json* value = find(key))
      field = read_flag(key, *value);
  }
  void operator()(const char* key, std::int64_t& field) {
    if (const Json* value = find(key))
      field = read_count(key, *value);
  }
  void operator()(const char* key, int& field) {
    if (const Json* value = find(key)) {
      const std::int64_t count = read_count(key, *value);
      if (count < INT32_MIN || count > INT32_MAX) {
        throw UsageError(fmt::format("key '{}' is out of range", key));
      }
      field = static_cast<int>(count);
    }
  }
  void operator()(const char* key, std::vector<std::string>& field) {
    if (const Json* value = find(key))
      field = read_texts(key, *value);
  }
  void operator()(const char* key, std::map<std::string, std::string>& field) {
    if (const Json* value = find(key))
      field = read_pairs(key, *value);
  }
};

}  // namespace

std::string to_json_line(const Row& row) {
  OrderedJson json;
  json["kind"] = "row";
  for (const Column& column : columns()) {
    json[column.key] = to_json(column.get(row));
  }
  return dump(json);
}

std::string to_json_line(const Context& context) {
  OrderedJson json;
  json["kind"] = "context";
  json["schema"] = kResultsSchema;
  visit_context(context, [&](const char* key, const auto& value) { json[key] = value; });
  return dump(json);
}

bool is_json(const std::string& text) { return Json::accept(text); }

Row row_from_json(const Json& json, std::vector<std::string>& unknown) {
  Row row;
  for (const auto& [key, value] : json.items()) {
    if (const Column* column = find_column(key)) {
      column->set(row, read_cell(*column, value));
    } else if (key != "kind") {
      unknown.push_back(key);
    }
  }
  for (const char* key : {"scenario", "case", "backend", "status"}) {
    if (!json.contains(key)) {
      throw UsageError(fmt::format("row without the key '{}'", key));
    }
  }
  return row;
}

Context context_from_json(const Json& json, std::vector<std::string>& unknown) {
  Context context;
  const auto schema = json.find("schema");
  if (schema == json.end()) {
    throw UsageError("context without the key 'schema'");
  }
  const std::int64_t number = read_count("schema", *schema);
  if (number > kResultsSchema) {
    throw UsageError(fmt::format(
        "schema {} is newer than this lora-bench reads (up to {}); use a newer lora-bench", number,
        kResultsSchema));
  }
  if (number < 1) {
    throw UsageError(fmt::format("schema {} does not exist; the first is 1", number));
  }
  context.schema = static_cast<int>(number);
  ContextReader reader{json};
  visit_context(context, reader);
  for (const auto& [key, value] : json.items()) {
    if (std::find(reader.known.begin(), reader.known.end(), key) == reader.known.end()) {
      unknown.push_back(key);
    }
  }
  return context;
}

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
