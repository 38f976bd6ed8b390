#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/mutant/mutant_fault.h"
#include "verify/mutants.h"

namespace lora_bench {

struct GpuFaultEntry {
  kernels::MutantFault fault = kernels::MutantFault::kNone;
  MutantDoc doc;
  Level level = Level::kExact;                    // that catches it in its case
  std::string seen_in = "packed-bias-base-rows";  // the telling case that is enough to see it
};
[[nodiscard]] const std::vector<GpuFaultEntry>& gpu_fault_catalogue();

// Tiled kernels with one fault (kernels/mutant). Throws EnvironmentError without a usable GPU.
[[nodiscard]] std::unique_ptr<Backend> make_gpu_mutant(kernels::MutantFault fault,
                                                       const std::string& name);

}  // namespace lora_bench
