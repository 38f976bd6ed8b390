#pragma once

#include "verify/mutant_faults.h"

namespace lora_bench {

// The writes of a faulty kernel to memory that is not its own.
// What `supports` keeps for good.
void keep_when_asked(Fault fault);

void write_stray(const Problem& problem, const Operands& operands, Fault fault);

}  // namespace lora_bench
