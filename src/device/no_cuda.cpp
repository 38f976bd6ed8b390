#ifndef LORA_BENCH_HAVE_CUDA

#include "core/error.h"
#include "device/facts.h"
#include "device/memory.h"
#include "device/nvml.h"

namespace lora_bench {

std::string why_no_gpu() { return "this lora-bench was built without CUDA"; }

std::string gpu_identity(int) { return ""; }

DeviceFacts gpu_facts() { throw EnvironmentError(why_no_gpu()); }

std::unique_ptr<Memory> make_device_memory(int) { throw EnvironmentError(why_no_gpu()); }

}  // namespace lora_bench

#endif
