#ifdef LORA_BENCH_HAVE_CUDA

#include <fmt/format.h>

#include "core/error.h"
#include "device/cuda_check.h"
#include "device/facts.h"
#include "device/nvml.h"

namespace lora_bench {
namespace {

constexpr int kDevice = 0;

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      text += '-';
    }
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  LORA_BENCH_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, kDevice));
  return value;
}

int compute_capability() {
  return attribute(cudaDevAttrComputeCapabilityMajor) * 10 +
         attribute(cudaDevAttrComputeCapabilityMinor);
}

std::string find_reason() {
  DriverFacts facts;
  static_cast<void>(cudaDriverGetVersion(&facts.driver_version));
  static_cast<void>(cudaRuntimeGetVersion(&facts.runtime_version));
  const cudaError_t result = cudaGetDeviceCount(&facts.devices);
  if (result != cudaSuccess) {
    cudaGetLastError();
    facts.error = cudaGetErrorString(result);
    facts.devices = 0;
  }
  if (std::string reason = why_no_device(facts); !reason.empty()) {
    return reason;
  }
  const int capability = compute_capability();
  if (!architecture_fits(LORA_BENCH_CUDA_ARCHITECTURES, capability)) {
    return fmt::format(
        "this lora-bench has no code for compute capability {}.{}; it was built for {} "
        "(configure with -DCMAKE_CUDA_ARCHITECTURES={})",
        capability / 10, capability % 10, LORA_BENCH_CUDA_ARCHITECTURES, capability);
  }
  return {};
}

}  // namespace

std::string why_no_gpu() {
  static const std::string kReason = [] {
    try {
      return find_reason();
    } catch (const std::exception& error) {
      return fmt::format("no usable GPU: {}", error.what());
    }
  }();
  return kReason;
}

std::string gpu_identity(int gpu) {
  cudaDeviceProp properties{};
  LORA_BENCH_CUDA_CHECK(cudaGetDeviceProperties(&properties, gpu));
  return uuid_text(properties.uuid);
}

DeviceFacts gpu_facts() {
  if (const std::string reason = why_no_gpu(); !reason.empty()) {
    throw EnvironmentError(reason);
  }
  cudaDeviceProp properties{};
  LORA_BENCH_CUDA_CHECK(cudaGetDeviceProperties(&properties, kDevice));
  int runtime = 0;
  int driver = 0;
  LORA_BENCH_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  LORA_BENCH_CUDA_CHECK(cudaDriverGetVersion(&driver));
  DeviceFacts facts;
  facts.kind = "cuda";
  facts.name = properties.name;
  facts.identity = uuid_text(properties.uuid);
  facts.driver = nvml_driver_version();
  if (facts.driver.empty()) {
    facts.driver = fmt::format("CUDA {}", cuda_version_text(driver));
  }
  facts.runtime = cuda_version_text(runtime);
  facts.compute_capability = compute_capability();
  facts.multiprocessors = properties.multiProcessorCount;
  facts.cache_bytes = properties.l2CacheSize;
  facts.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  facts.clock_mhz_max = attribute(cudaDevAttrClockRate) / 1000.0;
  return facts;
}

}  // namespace lora_bench

#endif
