#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/columns.h"

namespace lora_bench {

// One column as a table shows it: of the registry, or a swept key.
struct View {
  std::string key, header;
  int priority = 0;
  bool right = false;  // numbers
  const Column* column = nullptr;

  [[nodiscard]] std::string text(const Row& row) const;
};

// The columns asked for; with none, the default set and the one that ranks, without those that are
// empty in every row. A
// key that no row has as a swept key is a UsageError that names the nearest.
[[nodiscard]] std::vector<View> choose_views(const std::vector<Row>& rows,
                                             const std::vector<std::string>& keys,
                                             std::string_view rank_by = "");
// The same error as far as it can be told before there are rows: a swept key has a dot, or is
// found later.
void check_view_keys(const std::vector<std::string>& keys);

}  // namespace lora_bench
