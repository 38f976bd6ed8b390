#include "ops/thread_pool.h"

#include <algorithm>
#include <utility>

#include "device/system_files.h"

namespace lora_bench {
namespace {

// A wake-up through the kernel costs tens of microseconds, as much as a whole decode step: who
// waits looks for about that long before it sleeps.
constexpr int kLooksBeforeSleep = 4000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns when `value` no longer is `known`.
template <typename Number>
void await_change(const std::atomic<Number>& value, Number known) {
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
  unfinished_.store(count, std::memory_order_relaxed);
  // From here on a worker may take items, also one that still looks for those of an earlier loop.
  untaken_.store(count, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  take_items();
  for (std::int64_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire)) {
    await_change(unfinished_, left);
  }
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void ThreadPool::serve() {
  for (;;) {
    // Read before the items are looked for, so that a loop begun meanwhile is not slept through.
    const std::uint32_t known = generation_.load(std::memory_order_acquire);
    if (leaving_.load(std::memory_order_relaxed)) {
      return;
    }
    take_items();
    await_change(generation_, known);
  }
}

// An item that is taken holds up the end of its loop, so body_ and count_ are its loop's until it
// is done; nothing of a loop may be read before. A worker that comes too late finds nothing to
// take.
void ThreadPool::take_items() {
  std::int64_t untaken = untaken_.load(std::memory_order_acquire);
  while (untaken > 0) {
    if (!untaken_.compare_exchange_weak(untaken, untaken - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
      continue;
    }
    try {
      (*body_)(count_ - untaken);
    } catch (...) {
      const std::lock_guard lock(failure_lock_);
      failure_ = std::current_exception();
    }
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      unfinished_.notify_all();
    }
    untaken = untaken_.load(std::memory_order_acquire);
  }
}

ThreadPool& shared_thread_pool() {
  static ThreadPool pool(std::max(1, usable_cores()));
  return pool;
}

}  // namespace lora_bench
