#pragma once

#include <string>
#include <vector>

#include "report/sink.h"

namespace lora_bench {

// A peer is a kernel of another project: a backend peer:NAME, or a row of earlier versions that
// says so in its column.

// Gives rows of peers without a floor that of our row of their case, where all was timed on one
// device.
void lend_floors(Results& results);

// Fills the speedup of rows of ours, over the best peer of their case that was timed alike, by the
// times that `rank_by` ranks by (see screen.h).
void add_speedups(std::vector<Row>& rows, const std::string& rank_by = "");

// "auto fastest in 15 of 17 cases, vllm in 2", by how much, then what each peer is; nothing without
// peers. Of the cases of which a row is shown, over all of their rows that were timed alike: what
// is left out of a table changes nobody's place.
[[nodiscard]] std::vector<std::string> notes_on_peers(const std::vector<Row>& shown,
                                                      const std::vector<Row>& all,
                                                      const std::string& rank_by = "");

}  // namespace lora_bench
