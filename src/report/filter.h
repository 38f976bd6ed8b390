#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/columns.h"

namespace lora_bench {

// `rank>=64`, `backend=auto*`, `case=*qkv*`, `status!=PASSED`, `adapters.slots<8`. Operators are
// = != >= <= > <. A number is compared as a number; text by = and != with the globs * and ?.
// Several filters are and-ed. Throws UsageError that names the column nearest to an unknown one,
// or says that an operator or value does not fit the column.
class Filter {
 public:
  // `swept_keys` are allowed beside the columns; a row without the key does not match.
  explicit Filter(const std::vector<std::string>& expressions,
                  const std::vector<std::string>& swept_keys = {});
  [[nodiscard]] bool matches(const Row& row) const;
  // The same of a row of which only some columns and the swept keys are known: whether what is
  // asked of those does not hold.
  [[nodiscard]] bool rules_out(const Row& row, const std::vector<std::string_view>& known) const;
  // Throws UsageError if a term asks for what only a run can tell.
  void refuse_results() const;

 private:
  struct Term {
    std::string expression, key, op, text;
    std::optional<double> number;  // of `text`

    [[nodiscard]] bool holds(const Row& row) const;
  };
  std::vector<Term> terms_;
};

// --case: whether one of the globs matches the id; no glob takes every id.
[[nodiscard]] bool case_selected(const std::vector<std::string>& globs, std::string_view id);
// A glob that matches nothing is a mistake, whatever the others match: throws UsageError with the
// nearest of `ids`, "no case is left to `purpose`".
void refuse_unmatched_cases(const std::vector<std::string>& globs,
                            const std::vector<std::string>& ids, std::string_view purpose);

// Whole-text match; * any run of characters, ? any one.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace lora_bench
