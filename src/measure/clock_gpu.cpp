#include "measure/clock.h"

#ifdef LORA_BENCH_HAVE_CUDA

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <span>
#include <thread>

#include "core/error.h"
#include "device/cuda_handles.h"
#include "device/facts.h"
#include "device/nvml.h"
#include "kernels/measure/probes.h"
#include "measure/clock_watch.h"
#include "measure/device_gate.h"

namespace lora_bench {
namespace {

// Events tell times apart that differ by this much.
constexpr double kGpuResolutionSeconds = 0.5e-6;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// What NVML tells of the GPU with this identity, as in DeviceFacts.
Conditions gpu_conditions(const std::string& identity) {
  const GpuReadings readings = read_gpu(identity);
  Conditions now;
  now.clock_mhz = readings.sm_clock_mhz;
  now.temperature_c = readings.temperature_c;
  now.power_w = readings.power_w;
  now.throttle = readings.throttle;
  now.load = std::numeric_limits<double>::quiet_NaN();
  return now;
}

// Launches that may wait behind a closed gate: at about 1024 kernels the host blocks inside the
// launch. A launch of a backend may be several kernels.
constexpr std::size_t kQueued = 200;

// About 3 us at 2 GHz: longer than what the device needs to make the next launch ready, so that a
// separator hides that as a kernel of an engine does.
constexpr int kSeparatorClocks = 6000;
constexpr unsigned kThreadsOfSeparator = 128;  // of its one block a multiprocessor

// Times by events what is queued behind a closed gate, so that no launch of the host falls between
// them.
class DeviceClock final : public Clock {
 public:
  DeviceClock(LaunchMode mode, const DeviceFacts& gpu)
      : mode_(mode),
        identity_(gpu.identity),
        multiprocessors_(static_cast<unsigned>(gpu.multiprocessors)),
        marker_(multiprocessors_) {}

  void load(int slot, std::vector<Launch> sequence) override {
    Loaded& loaded = slots_[slot];
    loaded.executable = CudaGraphExec();
    loaded.fits_behind_gate = true;
    loaded.sequence = std::move(sequence);
    // Kernels are loaded at their first launch, which waits for the device: behind a closed gate
    // that would be a deadlock.
    for (const Launch& launch : loaded.sequence) {
      launch(Stream{stream_.get()});
    }
    marker_.before(stream_.get());
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
    Loaded& loaded = loaded_in(slots_, slot);
    mhz_of_run_ = std::numeric_limits<double>::quiet_NaN();
    if (mode_ == LaunchMode::kGraph) {
      return seconds_of_graph(loaded);
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

  [[nodiscard]] Launch kept(Launch launch) override {
    if (mode_ != LaunchMode::kGraph) {
      return launch;
    }
    launch(Stream{stream_.get()});
    LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());
    const auto recorded = std::make_shared<const CudaRecording>(
        [&] { launch(Stream{stream_.get()}); }, stream_.get());
    return
        [recorded](Stream stream) { recorded->enqueue(static_cast<cudaStream_t>(stream.handle)); };
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
  [[nodiscard]] double sm_clock_mhz() override { return mhz_of_run_; }
  void rest(double seconds) override { sleep_for(seconds); }

 private:
  struct Loaded {
    std::vector<Launch> sequence;
    CudaGraphExec executable;
    bool fits_behind_gate = true;  // else the host waits until some of the graph has run
  };

  struct Enclosed {
    double seconds = 0;
    double busy_after_stop = 0;  // that the host waited for the device beyond the stop event
    bool gate_timed_out = false;
  };

  // Nothing in a graph waits for the device, but the driver may have no room for all of its kernels
  // behind a closed gate. It is then started without one: what the host takes to start it is
  // nothing beside a run that is so long.
  double seconds_of_graph(Loaded& loaded) {
    constexpr double kLongSeconds = 20e-3;
    const auto launch = [&] {
      LORA_BENCH_CUDA_CHECK(cudaGraphLaunch(loaded.executable.get(), stream_.get()));
    };
    if (loaded.fits_behind_gate) {
      const Enclosed run = enclosed(launch);
      loaded.fits_behind_gate = !run.gate_timed_out;
      if (loaded.fits_behind_gate) {
        return seconds_of(run);
      }
    }
    const Enclosed run = enclosed(launch, false);
    if (run.seconds < kLongSeconds) {
      refuse_waiting();
    }
    return seconds_of(run);
  }

  [[noreturn]] static void refuse_waiting() {
    throw CaseError(
        "the backend waits for the device inside a launch: its time cannot be taken by events "
        "(mode: graph would refuse it too)");
  }

  template <typename Enqueue>
  double timed(const Enqueue& enqueue) {
    const Enclosed run = enclosed(enqueue);
    if (run.gate_timed_out) {
      refuse_waiting();
    }
    return seconds_of(run);
  }

  double seconds_of(const Enclosed& run) {
    mhz_of_run_ = std::fmin(mhz_of_run_, marker_.mhz());
    watch_for_strays(run);
    return run.seconds;
  }

  template <typename Enqueue>
  Enclosed enclosed(const Enqueue& enqueue, bool gated = true) {
    LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());
    if (gated) {
      gate_.close(stream_.get());
    }
    try {
      marker_.before(stream_.get());
      LORA_BENCH_CUDA_CHECK(cudaEventRecord(start_.get(), stream_.get()));
      enqueue();
      LORA_BENCH_CUDA_CHECK(cudaEventRecord(stop_.get(), stream_.get()));
      marker_.after(stream_.get());
    } catch (...) {
      gate_.open();
      throw;
    }
    gate_.open();
    LORA_BENCH_CUDA_CHECK(cudaEventSynchronize(stop_.get()));
    const double stopped = steady_seconds();
    LORA_BENCH_CUDA_CHECK(cudaDeviceSynchronize());
    const double idle = steady_seconds();
    float milliseconds = 0;
    LORA_BENCH_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()));
    return {static_cast<double>(milliseconds) / 1000, idle - stopped, gated && gate_.timed_out()};
  }

  // Work on a stream of its own outlives the stop event, and the events lie. A host that wakes up
  // late looks the same, but does so after a sequence of nothing too; it does not always, so that a
  // device that is always busy then has work of the backend's.
  void watch_for_strays(const Enclosed& run) {
    constexpr double kLeastSeconds = 100e-6;
    constexpr int kInARow = 5;
    constexpr int kRunsOfNothing = 20;
    const double allowed = std::max(kLeastSeconds, run.seconds / 4);
    strays_ = run.busy_after_stop > allowed ? strays_ + 1 : 0;
    if (strays_ < kInARow) {
      return;
    }
    strays_ = 0;
    double of_nothing = std::numeric_limits<double>::infinity();
    for (int turn = 0; turn < kRunsOfNothing; ++turn) {
      of_nothing = std::min(of_nothing, enclosed([] {}).busy_after_stop);
    }
    if (run.busy_after_stop - of_nothing > allowed || of_nothing > kLeastSeconds) {
      throw CaseError(fmt::format(
          "the device is busy for {:.0f} us after the sequence of {:.0f} us ended: the backend "
          "works on another stream than the one it was given",
          run.busy_after_stop * 1e6, run.seconds * 1e6));
    }
  }

  LaunchMode mode_;
  std::string identity_;
  unsigned multiprocessors_;
  CudaStream stream_ = make_cuda_stream();
  CudaEvent start_ = make_cuda_event();
  CudaEvent stop_ = make_cuda_event();
  DeviceGate gate_;
  ClockMarker marker_;
  double mhz_of_run_ = std::numeric_limits<double>::quiet_NaN();
  std::map<int, Loaded> slots_;
  int strays_ = 0;
};

// The same for launches on a group, each of which may be the kernels of a whole layer.
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
    const Loaded& loaded = loaded_in(slots_, slot);
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
  [[nodiscard]] double now_seconds() override { return steady_seconds(); }
  [[nodiscard]] double sm_clock_mhz() override {
    double slowest = std::numeric_limits<double>::quiet_NaN();
    for (SmClock& clock : sm_clocks_) {
      slowest = std::fmin(slowest, clock.mhz());  // what is not known is left out
    }
    return slowest;
  }
  void rest(double seconds) override { sleep_for(seconds); }

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

std::unique_ptr<Clock> make_device_clock(LaunchMode mode) {
  return std::make_unique<DeviceClock>(mode, gpu_facts());
}

std::unique_ptr<Clock> make_gpu_group_clock(std::shared_ptr<const GpuGroup> gpus, LaunchMode mode) {
  return std::make_unique<GpuGroupClock>(std::move(gpus), mode);
}

}  // namespace lora_bench

#else

#include "core/error.h"
#include "device/facts.h"

namespace lora_bench {

std::unique_ptr<Clock> make_device_clock(LaunchMode) { throw EnvironmentError(why_no_gpu()); }

std::unique_ptr<Clock> make_gpu_group_clock(std::shared_ptr<const GpuGroup>, LaunchMode) {
  throw EnvironmentError(why_no_gpu());
}

}  // namespace lora_bench

#endif
