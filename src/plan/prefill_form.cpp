#include "plan/prefill_form.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "plan/plan.h"

namespace lora_bench {

PrefillForm make_prefill_form(std::span<const std::int32_t> adapter_of_token) {
  check_adapter_ids(adapter_of_token, std::numeric_limits<std::int32_t>::max());
  PrefillForm form;
  form.tokens = static_cast<std::int64_t>(adapter_of_token.size());
  for (std::size_t row = 0; row < adapter_of_token.size(); ++row) {
    if (row == 0 || adapter_of_token[row] != adapter_of_token[row - 1]) {
      form.starts.push_back(static_cast<std::int32_t>(row));
      form.lengths.push_back(0);
      form.adapters.push_back(adapter_of_token[row]);
    }
    ++form.lengths.back();
    form.longest = std::max<std::int64_t>(form.longest, form.lengths.back());
  }
  form.no_adapter = std::all_of(form.adapters.begin(), form.adapters.end(),
                                [](std::int32_t adapter) { return adapter < 0; });
  return form;
}

std::vector<std::int32_t> rows_of_sequences(std::span<const std::int64_t> lengths,
                                            std::span<const std::int32_t> adapters) {
  if (lengths.size() != adapters.size()) {
    throw std::invalid_argument(std::to_string(lengths.size()) + " lengths for " +
                                std::to_string(adapters.size()) + " adapters of sequences");
  }
  std::vector<std::int32_t> rows;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) {
      throw std::invalid_argument("sequence " + std::to_string(i) + " has " +
                                  std::to_string(lengths[i]) + " tokens");
    }
    rows.insert(rows.end(), static_cast<std::size_t>(lengths[i]), adapters[i]);
  }
  return rows;
}

}  // namespace lora_bench
