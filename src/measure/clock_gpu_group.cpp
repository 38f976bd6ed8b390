#include "measure/clock.h"

#ifdef LORA_BENCH_HAVE_CUDA

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "device/cuda_handles.h"
#include "device/facts.h"
#include "device/nvml.h"
#include "measure/device_gate.h"

namespace lora_bench {
namespace {

// Of launches that are no graph: see DeviceClock. A launch may be the kernels of a whole layer.
constexpr std::size_t kQueuedOnGroup = 40;

// Holds every GPU of the group behind a gate of its own until all of them have their work, opens
// the gates at once, and takes the time of the GPU that ends last.
class GpuGroupClock final : public Clock {
 public:
  GpuGroupClock(std::shared_ptr<const GpuGroup> gpus, LaunchMode mode)
      : gpus_(std::move(gpus)), mode_(mode), identity_(gpu_facts().identity) {
    for (int gpu = 0; gpu < count(); ++gpu) {
      const CurrentGpu current(gpu);
      streams_.push_back(static_cast<cudaStream_t>(gpus_->stream(gpu)));
      timers_.emplace_back();
      sm_clocks_.emplace_back(gpu_identity(gpu));
    }
  }

  void load(int slot, std::vector<Launch> sequence) override {
    Loaded& loaded = slots_[slot];
    loaded.executables.clear();
    loaded.sequence = std::move(sequence);
    // Kernels are loaded and GPUs connected at the first launch, which waits for the device.
    enqueue(loaded.sequence);
    synchronize();
    if (mode_ == LaunchMode::kGraph) {
      loaded.executables = record_graphs([&] { enqueue(loaded.sequence); }, streams_);
    }
  }

  [[nodiscard]] double run_seconds(int slot) override {
    const auto found = slots_.find(slot);
    if (found == slots_.end()) {
      throw std::logic_error("clock: nothing is loaded in this slot");
    }
    const Loaded& loaded = found->second;
    if (mode_ == LaunchMode::kGraph) {
      return timed([&] {
        for (int gpu = 0; gpu < count(); ++gpu) {
          const CurrentGpu current(gpu);
          LORA_BENCH_CUDA_CHECK(
              cudaGraphLaunch(loaded.executables[at(gpu)].get(), streams_[at(gpu)]));
        }
      });
    }
    double seconds = 0;
    for (std::size_t first = 0; first < loaded.sequence.size(); first += kQueuedOnGroup) {
      const std::size_t some = std::min(kQueuedOnGroup, loaded.sequence.size() - first);
      seconds += timed([&] { enqueue(std::span(loaded.sequence).subspan(first, some)); });
    }
    return seconds;
  }

  [[nodiscard]] Conditions conditions() override { return gpu_conditions(identity_); }
  [[nodiscard]] double resolution_seconds() const override { return kGpuResolutionSeconds; }
  [[nodiscard]] double now_seconds() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  [[nodiscard]] double sm_clock_mhz() override {
    double slowest = std::numeric_limits<double>::quiet_NaN();
    for (SmClock& clock : sm_clocks_) {
      slowest = std::fmin(slowest, clock.mhz());  // what is not known is left out
    }
    return slowest;
  }
  void rest(double seconds) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

 private:
  struct Loaded {
    std::vector<Launch> sequence;
    std::vector<CudaGraphExec> executables;  // of each GPU
  };
  struct Timer {
    CudaEvent start = make_cuda_event();
    CudaEvent stop = make_cuda_event();
    DeviceGate gate;
  };

  static std::size_t at(int gpu) { return static_cast<std::size_t>(gpu); }
  [[nodiscard]] int count() const { return static_cast<int>(gpus_->size()); }

  // What is launched knows the streams of the group.
  static void enqueue(std::span<const Launch> sequence) {
    for (const Launch& launch : sequence) {
      launch(Stream{});
    }
  }

  void synchronize() const {
    for (int gpu = 0; gpu < count(); ++gpu) {
      gpus_->memory(gpu)->synchronize();
    }
  }

  void open_gates() {
    for (Timer& timer : timers_) {
      timer.gate.open();
    }
  }

  template <typename Work>
  double timed(const Work& work) {
    synchronize();
    try {
      for (int gpu = 0; gpu < count(); ++gpu) {
        const CurrentGpu current(gpu);
        timers_[at(gpu)].gate.close(streams_[at(gpu)]);
        LORA_BENCH_CUDA_CHECK(cudaEventRecord(timers_[at(gpu)].start.get(), streams_[at(gpu)]));
      }
      work();
      for (int gpu = 0; gpu < count(); ++gpu) {
        const CurrentGpu current(gpu);
        LORA_BENCH_CUDA_CHECK(cudaEventRecord(timers_[at(gpu)].stop.get(), streams_[at(gpu)]));
      }
    } catch (...) {
      open_gates();
      throw;
    }
    open_gates();
    synchronize();
    double slowest = 0;
    for (int gpu = 0; gpu < count(); ++gpu) {
      const Timer& timer = timers_[at(gpu)];
      if (timer.gate.timed_out()) {
        throw CaseError("a launch waits for its GPU: its time cannot be taken by events");
      }
      const CurrentGpu current(gpu);
      float milliseconds = 0;
      LORA_BENCH_CUDA_CHECK(
          cudaEventElapsedTime(&milliseconds, timer.start.get(), timer.stop.get()));
      slowest = std::max(slowest, static_cast<double>(milliseconds) / 1000);
    }
    return slowest;
  }

  std::shared_ptr<const GpuGroup> gpus_;
  LaunchMode mode_;
  std::string identity_;
  std::vector<cudaStream_t> streams_;
  std::deque<Timer> timers_;
  std::vector<SmClock> sm_clocks_;
  std::map<int, Loaded> slots_;
};

}  // namespace

std::unique_ptr<Clock> make_gpu_group_clock(std::shared_ptr<const GpuGroup> gpus, LaunchMode mode) {
  return std::make_unique<GpuGroupClock>(std::move(gpus), mode);
}

}  // namespace lora_bench

#else

#include "core/error.h"
#include "device/facts.h"

namespace lora_bench {

std::unique_ptr<Clock> make_gpu_group_clock(std::shared_ptr<const GpuGroup>, LaunchMode) {
  throw EnvironmentError(why_no_gpu());
}

}  // namespace lora_bench

#endif
