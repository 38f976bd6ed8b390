#include "verify/staging.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_handles.h"
#include "device/facts.h"
#include "kernels/measure/probes.h"
#endif

namespace lora_bench {

#ifdef LORA_BENCH_HAVE_CUDA

namespace {

constexpr std::int64_t kReadBytes = std::int64_t{8} << 20;
constexpr int kLateClocks = 40000;  // some 20 us: longer than it takes to start the next kernel
constexpr int kMostRounds = 48;     // a round waits for memory once: some 10 us in all

}  // namespace

struct Load::Work {
  explicit Work(Memory& memory) : read(memory, kReadBytes), words(memory, 2 * sizeof(unsigned)) {
    grid.blocks = static_cast<unsigned>(gpu_facts().multiprocessors / 2 + 1);
    grid.threads_per_block = 1024;
    memory.synchronize();
    // A kernel that was never launched cannot be recorded.
    launch();
    memory.synchronize();
  }

  void launch() const {
    auto* turn = static_cast<unsigned*>(words.data());
    LORA_BENCH_CUDA_CHECK(kernels::launch_antagonist(read.data(), read.bytes(), turn, turn + 1,
                                                     kMostRounds, grid, stream.get()));
  }

  GuardedBuffer read, words;
  kernels::ProbeGrid grid;
  CudaStream stream = make_cuda_stream();
  CudaEvent forked = make_cuda_event();
  CudaEvent joined = make_cuda_event();
};

Load::Load(Memory& memory)
    : work_(memory.space() == Space::kDevice ? std::make_unique<Work>(memory) : nullptr) {}

void Load::begin(Stream stream) {
  if (work_ != nullptr) {
    const auto handle = static_cast<cudaStream_t>(stream.handle);
    LORA_BENCH_CUDA_CHECK(cudaEventRecord(work_->forked.get(), handle));
    LORA_BENCH_CUDA_CHECK(cudaStreamWaitEvent(work_->stream.get(), work_->forked.get(), 0));
    work_->launch();
  }
}

void Load::end(Stream stream) {
  if (work_ != nullptr) {
    const auto handle = static_cast<cudaStream_t>(stream.handle);
    LORA_BENCH_CUDA_CHECK(cudaEventRecord(work_->joined.get(), work_->stream.get()));
    LORA_BENCH_CUDA_CHECK(cudaStreamWaitEvent(handle, work_->joined.get(), 0));
  }
}

#else

struct Load::Work {};
Load::Load(Memory&) {}
void Load::begin(Stream) {}
void Load::end(Stream) {}

#endif

Load::~Load() = default;

void enqueue_late_copies(Memory& memory, const std::vector<Copy>& copies, Stream stream) {
#ifdef LORA_BENCH_HAVE_CUDA
  if (memory.space() == Space::kDevice) {
    kernels::LateCopies late;
    for (const Copy& copy : copies) {
      late.to[late.count] = copy.to;
      late.from[late.count] = copy.from;
      late.bytes[late.count++] = copy.bytes;
    }
    LORA_BENCH_CUDA_CHECK(
        kernels::launch_copy_late(late, kLateClocks, static_cast<cudaStream_t>(stream.handle)));
    return;
  }
#endif
  for (const Copy& copy : copies) {
    memory.enqueue_copy(stream.handle, copy.to, copy.from, copy.bytes);
  }
}

}  // namespace lora_bench
