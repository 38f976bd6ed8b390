#pragma once

#include <string>
#include <vector>

#include "report/sink.h"

namespace lora_bench {

// Our rows and behind them those that scripts/peers wrote of the same cases. Fills the speedup of
// ours by the times that `rank_by` ranks by (see screen.h); gives the peers our floor where both
// ran on one device, which makes a time below it INVALID. Throws UsageError for times of two
// devices of a kind, and for a peer's row of another case of the same name; one of a case that we
// have not is left out with a warning, a SKIPPED one of what was run further down without.
[[nodiscard]] Results with_peers(Results ours, const Results& peers,
                                 const std::string& rank_by = "");

// "auto fastest in 15 of 17 cases, vllm in 2", by how much, then what each peer is; nothing without
// peers. Of the cases of which a row is shown, over all of their rows that were timed alike: what
// is left out of a table changes nobody's place.
[[nodiscard]] std::vector<std::string> notes_on_peers(const std::vector<Row>& shown,
                                                      const std::vector<Row>& all,
                                                      const std::string& rank_by = "");

}  // namespace lora_bench
