#pragma once

#include <optional>

#include "verify/groundwork.h"
#include "verify/verify.h"

namespace lora_bench {

// Level 3: relations between launches of one backend, bit for bit as far as its numerics declare,
// else as the oracle says. They find what one launch cannot show: state left over, rows that depend
// on their neighbours, values read that must not matter. The first relation that does not hold, or
// nothing. Uses at most `max_rows` rows of the batch. Without the memory part only
// results are compared, without the bounded part the oracle is not asked. `declared` is what the
// backend declared for the problem when it was asked first; none = it is asked.
[[nodiscard]] std::optional<Failure> check_relations(Groundwork& groundwork, const Backend& backend,
                                                     Memory& memory, std::int64_t max_rows,
                                                     Part without = Part::kNone,
                                                     const std::optional<Numerics>& declared = {});

}  // namespace lora_bench
