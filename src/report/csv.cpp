#include "report/csv.h"

#include "report/columns.h"

namespace lora_bench {
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

}  // namespace lora_bench
