#include "device/gpu_group.h"

#ifdef LORA_BENCH_HAVE_CUDA

#include <fmt/format.h>

#include "core/error.h"
#include "device/cuda_handles.h"
#include "device/facts.h"

namespace lora_bench {

std::string why_no_gpus(std::int64_t wanted) {
  if (std::string reason = why_no_gpu(); !reason.empty()) {
    return reason;
  }
  int here = 0;
  LORA_BENCH_CUDA_CHECK(cudaGetDeviceCount(&here));
  if (here < wanted) {
    return fmt::format("{} GPUs are needed, {} {} here", wanted, here, here == 1 ? "is" : "are");
  }
  cudaDeviceProp first{};
  LORA_BENCH_CUDA_CHECK(cudaGetDeviceProperties(&first, 0));
  for (int gpu = 1; gpu < static_cast<int>(wanted); ++gpu) {
    cudaDeviceProp other{};
    LORA_BENCH_CUDA_CHECK(cudaGetDeviceProperties(&other, gpu));
    if (std::string(first.name) != other.name) {
      return fmt::format("GPU 0 is a {}, GPU {} a {}: shards need GPUs that are alike", first.name,
                         gpu, other.name);
    }
  }
  return "";
}

CurrentGpu::CurrentGpu(int gpu) : gpu_(gpu) {
  LORA_BENCH_CUDA_CHECK(cudaGetDevice(&before_));
  if (gpu_ != before_) {
    LORA_BENCH_CUDA_CHECK(cudaSetDevice(gpu_));
  }
}

CurrentGpu::~CurrentGpu() {
  if (gpu_ != before_) {
    LORA_BENCH_CUDA_REPORT(cudaSetDevice(before_));
  }
}

struct GpuGroup::Streams {
  std::vector<CudaStream> of_rank;
};

GpuGroup::GpuGroup(std::int64_t gpus) : streams_(std::make_unique<Streams>()) {
  if (const std::string reason = why_no_gpus(gpus); !reason.empty()) {
    throw EnvironmentError(reason);
  }
  for (int gpu = 0; gpu < static_cast<int>(gpus); ++gpu) {
    const CurrentGpu current(gpu);
    memories_.push_back(make_device_memory(gpu));
    streams_->of_rank.push_back(make_cuda_stream());
  }
}

GpuGroup::~GpuGroup() = default;

void* GpuGroup::stream(std::int64_t rank) const {
  return streams_->of_rank[static_cast<std::size_t>(rank)].get();
}

}  // namespace lora_bench

#else

#include "core/error.h"
#include "device/facts.h"

namespace lora_bench {

std::string why_no_gpus(std::int64_t) { return why_no_gpu(); }

CurrentGpu::CurrentGpu(int gpu) : gpu_(gpu) {}
CurrentGpu::~CurrentGpu() = default;

struct GpuGroup::Streams {};
GpuGroup::GpuGroup(std::int64_t) { throw EnvironmentError(why_no_gpu()); }
GpuGroup::~GpuGroup() = default;
void* GpuGroup::stream(std::int64_t) const { return nullptr; }

}  // namespace lora_bench

#endif
