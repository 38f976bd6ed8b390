#pragma once

#include <optional>

#include "verify/verify.h"

namespace lora_bench {

// Level 3: relations between launches of one backend, bit for bit as far as its numerics declare.
// They need no oracle, and find what one launch cannot show: state left over, rows that depend on
// their neighbours, values read that must not matter. The first relation that does not hold, or
// nothing. Uses at most `max_rows` rows of the batch. Without `guards` only results are compared.
[[nodiscard]] std::optional<Failure> check_relations(const Problem& problem, const Backend& backend,
                                                     Memory& memory, std::int64_t max_rows,
                                                     std::uint64_t seed, bool guards = true);

}  // namespace lora_bench
