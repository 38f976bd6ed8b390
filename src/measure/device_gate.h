#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/cuda_check.h"
#include "kernels/measure/probes.h"
#include "measure/clock_watch.h"

namespace lora_bench {

// What the clock of a device puts around a sequence. Only .cpp files with CUDA include this.

// Holds a CUDA stream while the host queues work behind it. The word that opens it lies in host
// memory that the device reads, so that opening needs no call of CUDA.
class DeviceGate {
 public:
  DeviceGate() {
    void* memory = nullptr;
    LORA_BENCH_CUDA_CHECK(cudaHostAlloc(&memory, sizeof(Words), cudaHostAllocMapped));
    words_ = static_cast<volatile Words*>(memory);
    words_->open = 1;
    words_->timed_out = 0;
  }
  ~DeviceGate() {
    open();
    LORA_BENCH_CUDA_REPORT(cudaFreeHost(const_cast<Words*>(words_)));
  }
  DeviceGate(const DeviceGate&) = delete;
  DeviceGate& operator=(const DeviceGate&) = delete;

  // The stream goes on after open(), or by itself after half a second.
  void close(cudaStream_t stream) {
    constexpr unsigned long long kTimeoutNs = 500'000'000;
    words_->open = 0;
    words_->timed_out = 0;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    // With unified addressing the device knows mapped memory by the address of the host.
    LORA_BENCH_CUDA_CHECK(
        kernels::launch_gate(&words_->open, &words_->timed_out, kTimeoutNs, stream));
  }
  void open() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    words_->open = 1;
  }
  // Whether the gate that was closed last went on by itself; ask after a synchronisation.
  [[nodiscard]] bool timed_out() const { return words_->timed_out != 0; }

 private:
  struct Words {
    unsigned open;
    unsigned timed_out;
  };
  volatile Words* words_ = nullptr;
};

// Clocks of the multiprocessors before a sequence and after it, in host memory that the device
// writes. Its launches are no part of what is timed.
class ClockMarker {
 public:
  explicit ClockMarker(unsigned multiprocessors) : multiprocessors_(multiprocessors) {
    void* memory = nullptr;
    LORA_BENCH_CUDA_CHECK(
        cudaHostAlloc(&memory, places() * sizeof(std::int64_t), cudaHostAllocMapped));
    marks_ = static_cast<std::int64_t*>(memory);
  }
  ~ClockMarker() { LORA_BENCH_CUDA_REPORT(cudaFreeHost(marks_)); }
  ClockMarker(const ClockMarker&) = delete;
  ClockMarker& operator=(const ClockMarker&) = delete;

  void before(cudaStream_t stream) {
    std::fill_n(marks_, places(), 0);
    mark(0, stream);
  }
  void after(cudaStream_t stream) { mark(2, stream); }
  // Between both; ask after a synchronisation.
  [[nodiscard]] double mhz() const { return mean_mhz({part(0), part(1)}, {part(2), part(3)}); }

 private:
  // Clocks and ns before, then both after.
  [[nodiscard]] std::size_t places() const { return std::size_t{4} * multiprocessors_; }
  [[nodiscard]] std::span<std::int64_t> part(unsigned number) const {
    return {marks_ + std::size_t{number} * multiprocessors_, multiprocessors_};
  }
  void mark(unsigned number, cudaStream_t stream) {
    LORA_BENCH_CUDA_CHECK(kernels::launch_mark_clocks(part(number).data(), part(number + 1).data(),
                                                      multiprocessors_, stream));
  }

  unsigned multiprocessors_;
  std::int64_t* marks_ = nullptr;
};

}  // namespace lora_bench
