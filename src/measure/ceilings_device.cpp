#include "measure/ceilings.h"

#ifdef LORA_BENCH_HAVE_CUDA

#include <algorithm>
#include <array>
#include <limits>

#include "device/cuda_handles.h"
#include "device/memory.h"
#include "kernels/measure/probes.h"
#include "measure/clock.h"
#include "measure/statistics.h"

namespace lora_bench {
namespace {

using kernels::Number;
using kernels::ProbeGrid;

constexpr int kReplays = 15;
// Launches in one replay at least, so that its time is far above the 0.5 us of an event.
constexpr std::int64_t kLaunches = 32;

cudaStream_t handle(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Device memory for the time of the measurement.
class Block {
 public:
  Block(Memory& memory, std::int64_t bytes) : memory_(memory), data_(memory.allocate(bytes)) {}
  ~Block() { memory_.release(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  [[nodiscard]] std::byte* at(std::int64_t offset) const {
    return static_cast<std::byte*>(data_) + offset;
  }

 private:
  Memory& memory_;
  void* data_;
};

class DeviceProbe {
 public:
  explicit DeviceProbe(const DeviceFacts& facts)
      : facts_(facts),
        clock_(make_device_clock(LaunchMode::kGraph)),
        memory_(make_device_memory()),
        room_(room_bytes(facts, *memory_)),
        data_(*memory_, room_),
        sink_(*memory_, 256) {
    const CudaStream stream = make_cuda_stream();
    LORA_BENCH_CUDA_CHECK(
        kernels::launch_fill_random(data_.at(0), room_, 1, grid(8), stream.get()));
    LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    warm_up();
  }

  [[nodiscard]] Ceilings measure() {
    Ceilings ceilings;
    ceilings.identity = facts_.identity;
    ceilings.launch_seconds = per_launch(std::vector<Launch>(
        256, [](Stream stream) { LORA_BENCH_CUDA_CHECK(kernels::launch_empty(handle(stream))); }));
    for (std::int64_t bytes = kSmallestReadBytes; bytes <= std::min(kLargestReadBytes, room_);
         bytes *= 2) {
      ceilings.read_cold.push_back({bytes, best_read(bytes, true)});
      ceilings.read_hot.push_back({bytes, best_read(bytes, false)});
    }
    ceilings.copy_bytes_per_s = copy_rate();
    for (const auto& [dtype, number] :
         {std::pair{Dtype::kBf16, Number::kBf16}, std::pair{Dtype::kFp16, Number::kFp16},
          std::pair{Dtype::kFp32, Number::kFp32}}) {
      ceilings.peaks.push_back({dtype, peak_rate(number)});
    }
    return ceilings;
  }

 private:
  // Enough to turn more than three caches over, and one read of the largest size; at most half of
  // what is free.
  static std::int64_t room_bytes(const DeviceFacts& facts, const Memory& memory) {
    const std::int64_t wanted = std::max(kLargestReadBytes, 4 * facts.cache_bytes);
    const std::int64_t room = std::min(wanted, memory.available_bytes() / 2);
    return room / kSmallestReadBytes * kSmallestReadBytes;
  }

  [[nodiscard]] ProbeGrid grid(int blocks_per_multiprocessor, unsigned threads = 256) const {
    return {static_cast<unsigned>(facts_.multiprocessors * blocks_per_multiprocessor), threads};
  }

  // Clocks take a while to rise from idle.
  void warm_up() {
    clock_->load(0, {[this](Stream stream) { read(0, room_, grid(8), false, stream); }});
    const double until = clock_->now_seconds() + 0.3;
    while (clock_->now_seconds() < until) {
      static_cast<void>(clock_->run_seconds(0));
    }
  }

  void read(std::int64_t offset, std::int64_t bytes, ProbeGrid blocks, bool linked,
            Stream stream) const {
    LORA_BENCH_CUDA_CHECK(kernels::launch_read_stream(
        data_.at(offset), bytes, static_cast<unsigned*>(sink()), blocks, linked, handle(stream)));
  }

  [[nodiscard]] void* sink() const { return sink_.at(0); }

  // Median over the replays, seconds a launch.
  double per_launch(std::vector<Launch> sequence) {
    const auto count = static_cast<double>(sequence.size());
    clock_->load(0, std::move(sequence));
    std::vector<double> samples;
    for (int replay = 0; replay < kReplays; ++replay) {
      samples.push_back(clock_->run_seconds(0) / count);
    }
    return summarize(samples).median;
  }

  // Cold: the launches walk through all of the memory, so that nothing is read again before more
  // than three caches of other data. Hot: the same bytes again and again. The best grid counts,
  // linked or not: a ceiling must not be lower than what a well-chosen kernel reaches.
  double best_read(std::int64_t bytes, bool cold) {
    constexpr std::int64_t kMostLaunches = 8192;
    const std::int64_t places = room_ / bytes;
    const std::int64_t turned =
        std::min({places, kMostLaunches, 4 * facts_.cache_bytes / bytes + 1});
    const std::int64_t launches =
        cold ? std::max(turned, std::min(places, kLaunches))
             : std::clamp<std::int64_t>(kLargestReadBytes / bytes, 1, kLaunches);
    double best = std::numeric_limits<double>::infinity();
    for (const int blocks : {1, 2, 4, 8}) {
      for (const bool linked : {false, true}) {
        std::vector<Launch> sequence;
        for (std::int64_t i = 0; i < launches; ++i) {
          const std::int64_t offset = cold ? i * bytes : 0;
          sequence.emplace_back([this, offset, bytes, blocks, linked](Stream stream) {
            read(offset, bytes, grid(blocks), linked, stream);
          });
        }
        best = std::min(best, per_launch(std::move(sequence)));
      }
    }
    return best;
  }

  double copy_rate() {
    const std::int64_t half = room_ / 2 / 256 * 256;
    double best = std::numeric_limits<double>::infinity();
    for (const int blocks : {2, 4, 8}) {
      best = std::min(best, per_launch({[this, half, blocks](Stream stream) {
                        LORA_BENCH_CUDA_CHECK(kernels::launch_copy(
                            data_.at(half), data_.at(0), half, grid(blocks), handle(stream)));
                      }}));
    }
    return 2 * static_cast<double>(half) / best;
  }

  double peak_rate(Number number) {
    constexpr int kRounds = 2000;
    constexpr unsigned kThreads = 256;
    const double per_round =
        kernels::peak_probe(number, facts_.compute_capability).flops_per_warp_round;
    double best = 0;
    for (const int blocks : {1, 2, 4}) {
      const ProbeGrid blocks_of = grid(blocks, kThreads);
      const double seconds = per_launch({[this, number, blocks_of](Stream stream) {
        LORA_BENCH_CUDA_CHECK(kernels::launch_peak(number, facts_.compute_capability, kRounds,
                                                   static_cast<float*>(sink()), blocks_of,
                                                   handle(stream)));
      }});
      const double warps = static_cast<double>(blocks_of.blocks) * kThreads / 32;
      best = std::max(best, warps * kRounds * per_round / seconds);
    }
    return best;
  }

  DeviceFacts facts_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<Memory> memory_;
  std::int64_t room_;
  Block data_;
  Block sink_;
};

}  // namespace

Ceilings measure_device_ceilings() { return DeviceProbe(gpu_facts()).measure(); }

}  // namespace lora_bench

#else

#include "core/error.h"

namespace lora_bench {

Ceilings measure_device_ceilings() { throw EnvironmentError(why_no_gpu()); }

}  // namespace lora_bench

#endif
