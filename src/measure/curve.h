#pragma once

#include <vector>

#include "measure/ceilings.h"

namespace lora_bench {

// Measured curves, ascending in bytes, as ceilings: what a disturbed run measured too high comes
// down to what other sizes prove possible.

// Reading more cannot take less.
void make_monotone(std::vector<Ceilings::Point>& curve);
// Of data from memory: reading more cannot take longer than reading it piece by piece. (Not so
// where the pieces fit into a cache and the whole does not.)
void make_no_slower_than_pieces(std::vector<Ceilings::Point>& curve);

}  // namespace lora_bench
