#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "report/columns.h"

namespace lora_bench {

// A column of the registry from a field of Row, whose type says what its cells hold.

struct ColumnWords {
  std::string key, header, unit, meaning, formula;
};

struct ColumnShown {
  bool in_table = false;
  int priority = 9;
};

template <class T>
constexpr CellType cell_type() {
  if constexpr (std::same_as<T, bool>) {
    return CellType::kFlag;
  } else if constexpr (std::same_as<T, std::int64_t>) {
    return CellType::kCount;
  } else if constexpr (std::same_as<T, double>) {
    return CellType::kFigure;
  } else if constexpr (std::same_as<T, std::string>) {
    return CellType::kText;
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    return CellType::kTexts;
  } else if constexpr (std::same_as<T, std::vector<double>>) {
    return CellType::kFigures;
  } else {
    return CellType::kPairs;
  }
}

// The value that a field holds, if any.
template <class T>
struct Held {
  using Value = T;
};
template <class T>
struct Held<std::optional<T>> {
  using Value = T;
};

// The type of a part says which it is.
constexpr std::tuple kParts{&Row::id,      &Row::step,       &Row::layer, &Row::proof,
                            &Row::time,    &Row::tax,        &Row::floor, &Row::rates,
                            &Row::counted, &Row::conditions, &Row::limits};

// Of a field of a row, or of one of its parts.
template <class Part, class T>
Column column(ColumnWords words, T Part::*field, ColumnShown shown = {}) {
  using Value = typename Held<T>::Value;
  const auto find = [field](auto& row) -> auto& {
    if constexpr (std::same_as<Part, Row>) {
      return row.*field;
    } else {
      return row.*std::get<Part Row::*>(kParts).*field;
    }
  };
  return {std::move(words.key),
          std::move(words.header),
          std::move(words.unit),
          std::move(words.meaning),
          std::move(words.formula),
          shown.in_table,
          shown.priority,
          cell_type<Value>(),
          [find](const Row& row) -> Cell {
            if constexpr (std::same_as<T, Value>) {
              return find(row);
            } else {
              return find(row) ? Cell{*find(row)} : Cell{};
            }
          },
          [find](Row& row, const Cell& cell) {
            const Value* value = std::get_if<Value>(&cell);
            find(row) = value != nullptr ? T(*value) : T{};
          }};
}

inline Column status_column() {
  Column status =
      column({"status", "status", "",
              "PASSED, FAILED, MISTRUSTED, SKIPPED, INVALID, HUNG or ERROR; about correctness", ""},
             &Row::message, {true, 0});
  status.get = [](const Row& row) -> Cell { return std::string(name(row.status)); };
  status.set = [](Row& row, const Cell& cell) {
    const std::string text =
        std::holds_alternative<std::string>(cell) ? std::get<std::string>(cell) : "";
    const std::optional<Status> value = named<Status>(text);
    if (!value) {
      throw UsageError("unknown status '" + text + "'");
    }
    row.status = *value;
  };
  return status;
}

// The parts of the registry about times and what follows from them.
[[nodiscard]] std::vector<Column> time_columns();
[[nodiscard]] std::vector<Column> layer_columns();
[[nodiscard]] std::vector<Column> metric_columns();
[[nodiscard]] std::vector<Column> counter_columns();

}  // namespace lora_bench
