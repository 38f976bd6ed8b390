#include "reference/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace lora_bench::reference {

std::int64_t available_threads() {
  return std::max<std::int64_t>(1, std::thread::hardware_concurrency());
}

void parallel(std::int64_t parts, std::int64_t threads,
              const std::function<void(std::int64_t)>& work) {
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_lock;
  const auto take_parts = [&] {
    try {
      for (std::int64_t part = next++; part < parts; part = next++) {
        work(part);
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(failure_lock);
      failure = failure ? failure : std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (std::int64_t i = 1; i < std::min(parts, threads); ++i) {
    others.emplace_back(take_parts);
  }
  take_parts();
  for (std::thread& thread : others) {
    thread.join();
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace lora_bench::reference
