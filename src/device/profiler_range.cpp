#include "device/cupti.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_CUDA

ProfilerRange::ProfilerRange(const std::string& name) {
  nvtxRangePushA("lora-bench");
  nvtxRangePushA(name.c_str());
}
ProfilerRange::~ProfilerRange() {
  nvtxRangePop();
  nvtxRangePop();
}

#else

ProfilerRange::ProfilerRange(const std::string&) {}
ProfilerRange::~ProfilerRange() = default;

#endif
}  // namespace lora_bench
