#pragma once

#include <string>
#include <vector>

#include "report/sink.h"

namespace lora_bench {

// Appends a sentence for each way in which NEW was held to less than BASE, or to another thing: the
// options of the command line, a larger max_regression, a level of proof or rows that were not
// looked at. A pass through a wider gate is no pass of the old one.
void note_looser_gates(const Results& base, const Results& fresh,
                       std::vector<std::string>& warnings);

}  // namespace lora_bench
