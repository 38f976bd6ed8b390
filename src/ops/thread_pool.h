#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lora_bench {

// Persistent workers for short parallel loops; the caller works too. One loop at a time. A loop
// waits only for items that were taken: a worker that the system keeps from running costs it
// nothing.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // at least 1, the caller included
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }
  // Calls body(item) for every item in [0, count), each once, in no particular order, and returns
  // when all are done. Rethrows the first exception of a body; the other items still run.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& body);

 private:
  void serve();
  void take_items();

  std::mutex one_loop_;
  std::vector<std::thread> workers_;
  const std::function<void(std::int64_t)>* body_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> untaken_{0};
  std::atomic<std::int64_t> unfinished_{0};
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> leaving_{false};
  std::mutex failure_lock_;
  std::exception_ptr failure_;
};

// One pool for the process, as wide as the cores that it may use.
[[nodiscard]] ThreadPool& shared_thread_pool();

}  // namespace lora_bench
