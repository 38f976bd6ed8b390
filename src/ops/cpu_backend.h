#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ops/backend.h"

namespace lora_bench {

inline constexpr std::string_view kCpuSummary =
    "host cores, vectorised (AVX-512, AVX2 or baseline); every op in bf16, fp16 and fp32";

struct CpuOptions {
  int threads = 0;  // 0 = the pool of the process: as many as it may use
  std::string isa;  // "" = the best of this processor, else "baseline", "avx2", "avx512"
};

// For users without a GPU: every op, fp32, bf16 and fp16. Throws UsageError for an instruction set
// that is not here.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace lora_bench
