#include "measure/clock.h"

#ifdef LORA_BENCH_HAVE_CUDA

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <span>
#include <stdexcept>
#include <thread>

#include "core/error.h"
#include "device/cuda_handles.h"
#include "device/facts.h"
#include "device/nvml.h"
#include "kernels/measure/probes.h"
#include "measure/device_gate.h"

namespace lora_bench {
namespace {

// Launches that may wait behind a closed gate: at about 1024 kernels the host blocks inside the
// launch. A launch of a backend may be several kernels.
constexpr std::size_t kQueued = 200;

// About 3 us at 2 GHz: longer than what the device needs to make the next launch ready, so that a
// separator hides that as a kernel of an engine does.
constexpr int kSeparatorClocks = 6000;
constexpr unsigned kThreadsOfSeparator = 128;  // of its one block a multiprocessor

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Times by events what is queued behind a closed gate, so that no launch of the host falls between
// them.
class DeviceClock final : public Clock {
 public:
  DeviceClock(LaunchMode mode, const DeviceFacts& gpu)
      : mode_(mode),
        identity_(gpu.identity),
        multiprocessors_(static_cast<unsigned>(gpu.multiprocessors)),
        sm_clock_(gpu.identity) {}

  void load(int slot, std::vector<Launch> sequence) override {
    Loaded& loaded = slots_[slot];
    loaded.executable = CudaGraphExec();
    loaded.sequence = std::move(sequence);
    // Kernels are loaded at their first launch, which waits for the device: behind a closed gate
    // that would be a deadlock.
    for (const Launch& launch : loaded.sequence) {
      launch(Stream{stream_.get()});
    }
    LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());
    if (mode_ == LaunchMode::kGraph) {
      loaded.executable = record_graph(
          [&] {
            for (const Launch& launch : loaded.sequence) {
              launch(Stream{stream_.get()});
            }
          },
          stream_.get());
    }
  }

  [[nodiscard]] double run_seconds(int slot) override {
    const auto found = slots_.find(slot);
    if (found == slots_.end()) {
      throw std::logic_error("clock: nothing is loaded in this slot");
    }
    const Loaded& loaded = found->second;
    if (mode_ == LaunchMode::kGraph) {
      return timed(
          [&] { LORA_BENCH_CUDA_CHECK(cudaGraphLaunch(loaded.executable.get(), stream_.get())); });
    }
    double seconds = 0;
    for (std::size_t first = 0; first < loaded.sequence.size(); first += kQueued) {
      const std::size_t count = std::min(kQueued, loaded.sequence.size() - first);
      seconds += timed([&] {
        for (const Launch& launch : std::span(loaded.sequence).subspan(first, count)) {
          launch(Stream{stream_.get()});
        }
      });
    }
    return seconds;
  }

  [[nodiscard]] Conditions conditions() override { return gpu_conditions(identity_); }
  [[nodiscard]] double resolution_seconds() const override { return kGpuResolutionSeconds; }
  [[nodiscard]] double now_seconds() override { return steady_seconds(); }
  [[nodiscard]] Launch separator() override {
    return [blocks = multiprocessors_](Stream stream) {
      LORA_BENCH_CUDA_CHECK(kernels::launch_separator(kSeparatorClocks,
                                                      {blocks, kThreadsOfSeparator},
                                                      static_cast<cudaStream_t>(stream.handle)));
    };
  }
  [[nodiscard]] double sm_clock_mhz() override { return sm_clock_.mhz(); }
  void rest(double seconds) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

 private:
  struct Loaded {
    std::vector<Launch> sequence;
    CudaGraphExec executable;
  };

  template <typename Enqueue>
  double timed(Enqueue enqueue) {
    LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());
    gate_.close(stream_.get());
    try {
      LORA_BENCH_CUDA_CHECK(cudaEventRecord(start_.get(), stream_.get()));
      enqueue();
      LORA_BENCH_CUDA_CHECK(cudaEventRecord(stop_.get(), stream_.get()));
    } catch (...) {
      gate_.open();
      throw;
    }
    gate_.open();
    LORA_BENCH_CUDA_CHECK(cudaEventSynchronize(stop_.get()));
    const double stopped = steady_seconds();
    LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());
    const double idle = steady_seconds();
    if (gate_.timed_out()) {
      throw CaseError(
          "the backend waits for the device inside a launch: its time cannot be taken by events "
          "(mode: graph would refuse it too)");
    }
    float milliseconds = 0;
    LORA_BENCH_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()));
    const double seconds = static_cast<double>(milliseconds) / 1000;
    watch_for_strays(seconds, idle - stopped);
    return seconds;
  }

  // Work on a stream of its own outlives the stop event, and the events lie. One late wake-up of
  // the host looks the same, five in a row do not.
  void watch_for_strays(double seconds, double busy_after_stop) {
    constexpr double kLeastSeconds = 100e-6;
    constexpr int kInARow = 5;
    strays_ = busy_after_stop > std::max(kLeastSeconds, seconds / 4) ? strays_ + 1 : 0;
    if (strays_ >= kInARow) {
      throw CaseError(fmt::format(
          "the device is busy for {:.0f} us after the sequence of {:.0f} us ended: the backend "
          "works on another stream than the one it was given",
          busy_after_stop * 1e6, seconds * 1e6));
    }
  }

  LaunchMode mode_;
  std::string identity_;
  unsigned multiprocessors_;
  SmClock sm_clock_;
  CudaStream stream_ = make_cuda_stream();
  CudaEvent start_ = make_cuda_event();
  CudaEvent stop_ = make_cuda_event();
  DeviceGate gate_;
  std::map<int, Loaded> slots_;
  int strays_ = 0;
};

}  // namespace

std::unique_ptr<Clock> make_device_clock(LaunchMode mode) {
  return std::make_unique<DeviceClock>(mode, gpu_facts());
}

}  // namespace lora_bench

#else

#include "core/error.h"
#include "device/facts.h"

namespace lora_bench {

std::unique_ptr<Clock> make_device_clock(LaunchMode) { throw EnvironmentError(why_no_gpu()); }

}  // namespace lora_bench

#endif
