#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "device/cuda_handles.h"
#include "device/facts.h"
#include "device/memory.h"
#include "kernels/measure/probes.h"
#include "measure/ceilings.h"
#include "measure/clock.h"
#include "measure/statistics.h"

namespace lora_bench {

inline cudaStream_t cuda_stream(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Memory on the device and a clock that replays graphs: what all probes of its ceilings need. Only
// ceilings_device.cpp includes this.
class ProbeBench {
 public:
  // Reading less than this costs a launch and nothing else.
  static constexpr std::int64_t kFewestBytes = std::int64_t{256} << 10;
  static constexpr std::int64_t kRowBytes = 4096;  // of a step

  explicit ProbeBench(const DeviceFacts& facts)
      : facts_(facts),
        clock_(make_device_clock(LaunchMode::kGraph)),
        memory_(make_device_memory()),
        room_(room_bytes(facts, *memory_)),
        data_(*memory_, room_),
        rows_(*memory_, kRowNumberBytes),
        few_(*memory_, 256),
        sink_(*memory_, 256) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(kMostRows));
    std::iota(numbers.begin(), numbers.end(), 0);
    memory_->copy_in(rows_.at(0), numbers.data(), kRowNumberBytes);
    const CudaStream stream = make_cuda_stream();
    LORA_BENCH_CUDA_CHECK(
        kernels::launch_fill_random(data_.at(0), room_, 1, grid(8), stream.get()));
    LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    raise_clocks();
  }

  [[nodiscard]] const DeviceFacts& facts() const { return facts_; }
  // Bytes of random numbers.
  [[nodiscard]] std::int64_t room() const { return room_; }
  [[nodiscard]] std::byte* data(std::int64_t offset) const { return data_.at(offset); }
  // A word that kernels hardly ever write.
  [[nodiscard]] unsigned* sink() const { return reinterpret_cast<unsigned*>(sink_.at(0)); }

  [[nodiscard]] kernels::ProbeGrid grid(int blocks_per_multiprocessor,
                                        unsigned threads = 256) const {
    return {static_cast<unsigned>(facts_.multiprocessors * blocks_per_multiprocessor), threads};
  }

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

  // A launch that reads so many bytes once.
  [[nodiscard]] Launch reading(std::int64_t offset, std::int64_t bytes, kernels::ProbeGrid blocks,
                               kernels::Start start) const {
    return [=, this](Stream stream) {
      LORA_BENCH_CUDA_CHECK(kernels::launch_read_stream(data(offset), bytes, sink(), blocks, start,
                                                        cuda_stream(stream)));
    };
  }

  // A plan of one group with so many rows, and no operand yet.
  kernels::TouchParams step_of(std::int64_t rows) {
    const std::int32_t ends[] = {0, static_cast<std::int32_t>(rows)};
    memory_->copy_in(few_.at(0), ends, sizeof ends);
    kernels::TouchParams params;
    params.token_order = reinterpret_cast<const std::int32_t*>(rows_.at(0));
    params.adapter_of_token = params.token_order;
    params.group_starts = reinterpret_cast<const std::int32_t*>(few_.at(0));
    params.active_ids = params.group_starts;
    params.rank = params.group_starts;
    params.uniform_rank = 1;
    params.tokens = rows;
    params.active = 1;
    params.sink = sink();
    return params;
  }

  // Launches in one replay that read other bytes each, four caches of them.
  [[nodiscard]] std::int64_t cold_launches(std::int64_t bytes) const {
    constexpr std::int64_t kMostLaunches = 8192;
    const std::int64_t places = room_ / bytes;
    const std::int64_t turned =
        std::min({places, kMostLaunches, 4 * facts_.cache_bytes / bytes + 1});
    return std::max(turned, std::min(places, kLaunches));
  }
  // Launches in one replay that go over the same bytes.
  [[nodiscard]] static std::int64_t launches_over(std::int64_t bytes) {
    return std::clamp<std::int64_t>(kLargestReadBytes / bytes, 1, kLaunches);
  }

 private:
  static constexpr int kReplays = 15;
  // Launches in one replay where memory allows, so that what a replay costs beside them counts for
  // nothing: 0.1 us a launch with 32 of them.
  static constexpr std::int64_t kLaunches = 256;
  static constexpr std::int64_t kMostRows = kLargestReadBytes / kRowBytes;
  static constexpr std::int64_t kRowNumberBytes = kMostRows * std::int64_t{sizeof(std::int32_t)};

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

  // Enough to turn more than three caches over, and one read of the largest size; at most half of
  // what is free.
  static std::int64_t room_bytes(const DeviceFacts& facts, const Memory& memory) {
    const std::int64_t wanted = std::max(kLargestReadBytes, 4 * facts.cache_bytes);
    const std::int64_t room = std::min(wanted, memory.available_bytes() / 2);
    return room / kFewestBytes * kFewestBytes;
  }

  // Clocks take a while to rise from idle.
  void raise_clocks() {
    clock_->load(0, {reading(0, room_, grid(8), kernels::Start::kApart)});
    const double until = clock_->now_seconds() + 0.3;
    while (clock_->now_seconds() < until) {
      static_cast<void>(clock_->run_seconds(0));
    }
  }

  DeviceFacts facts_;
  std::unique_ptr<Clock> clock_;
  std::unique_ptr<Memory> memory_;
  std::int64_t room_;
  Block data_;
  Block rows_;  // the numbers from 0 on, as a plan numbers the rows of a batch
  Block few_;   // where the one group of that batch starts and ends
  Block sink_;
};

}  // namespace lora_bench
