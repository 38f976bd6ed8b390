#include "device/profiler_range.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_CUDA

ProfilerRange::ProfilerRange() { nvtxRangePushA("lora-bench"); }
ProfilerRange::~ProfilerRange() { nvtxRangePop(); }

#else

ProfilerRange::ProfilerRange() = default;
ProfilerRange::~ProfilerRange() = default;

#endif
}  // namespace lora_bench
