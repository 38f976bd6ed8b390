#include "ops/thread_pool.h"

#include <algorithm>
#include <utility>

#include "device/system_files.h"

namespace lora_bench {
namespace {

// A wake-up through the kernel costs tens of microseconds, as much as a whole decode step: a worker
// looks for the next loop for about that long before it sleeps.
constexpr int kLooksBeforeSleep = 20000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns when `value` no longer is `known`.
void await_change(const std::atomic<std::uint32_t>& value, std::uint32_t known) {
  for (int look = 0; look < kLooksBeforeSleep; ++look) {
    if (value.load(std::memory_order_acquire) != known) {
      return;
    }
    pause_briefly();
  }
  value.wait(known, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this] { serve(); });
  }
}

ThreadPool::~ThreadPool() {
  leaving_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t)>& body) {
  if (workers_.empty() || count <= 1) {
    for (std::int64_t item = 0; item < count; ++item) {
      body(item);
    }
    return;
  }
  const std::lock_guard lock(one_loop_);
  body_ = &body;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_items();
  for (std::uint32_t busy = busy_.load(std::memory_order_acquire); busy != 0;
       busy = busy_.load(std::memory_order_acquire)) {
    await_change(busy_, busy);
  }
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void ThreadPool::serve() {
  std::uint32_t known = 0;
  for (;;) {
    await_change(generation_, known);
    if (leaving_.load(std::memory_order_relaxed)) {
      return;
    }
    // Each loop waits for every worker, so none is ever skipped.
    ++known;
    take_items();
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      busy_.notify_all();
    }
  }
}

void ThreadPool::take_items() {
  for (std::int64_t item = next_.fetch_add(1, std::memory_order_relaxed); item < count_;
       item = next_.fetch_add(1, std::memory_order_relaxed)) {
    try {
      (*body_)(item);
    } catch (...) {
      const std::lock_guard lock(failure_lock_);
      failure_ = std::current_exception();
    }
  }
}

ThreadPool& shared_thread_pool() {
  static ThreadPool pool(std::max(1, usable_cores()));
  return pool;
}

}  // namespace lora_bench
