#include "ops/thread_pool.h"

#include <doctest/doctest.h>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

using lora_bench::ThreadPool;

TEST_CASE("every item runs exactly once, loop after loop") {
  ThreadPool pool(4);
  CHECK(pool.threads() == 4);
  for (int loop = 0; loop < 300; ++loop) {
    const std::int64_t count = loop % 37;
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
    pool.run(count, [&](std::int64_t item) { ++seen[static_cast<std::size_t>(item)]; });
    std::int64_t once = 0;
    for (const std::atomic<int>& times : seen) {
      once += times == 1 ? 1 : 0;
    }
    CHECK(once == count);
  }
}

TEST_CASE("a pool without work ends") {
  ThreadPool idle(3);
  ThreadPool single(1);
  CHECK(single.threads() == 1);
}

TEST_CASE("an exception of an item reaches the caller and the pool goes on") {
  ThreadPool pool(3);
  std::atomic<int> done{0};
  CHECK_THROWS_AS(pool.run(20,
                           [&](std::int64_t item) {
                             if (item == 7) {
                               throw std::runtime_error("item 7");
                             }
                             ++done;
                           }),
                  std::runtime_error);
  CHECK(done == 19);
  pool.run(5, [&](std::int64_t) { ++done; });
  CHECK(done == 24);
}

#ifndef LORA_BENCH_THREAD_SANITIZED  // which delivers signals only where a thread calls the library

namespace {

std::atomic<bool> held{false};
std::atomic<bool> released{false};

void hold(int) {
  held = true;
  while (!released) {
  }
}

// The worker of a pool of two: one of two items that wait for each other.
pthread_t worker_of(ThreadPool& pool) {
  const pthread_t caller = pthread_self();
  std::atomic<int> inside{0};
  pthread_t worker{};
  pool.run(2, [&](std::int64_t) {
    if (pthread_equal(pthread_self(), caller) == 0) {
      worker = pthread_self();
    }
    for (++inside; inside < 2;) {
      std::this_thread::yield();
    }
  });
  return worker;
}

}  // namespace

TEST_CASE("a loop does not wait for a worker that the system keeps from running") {
  ThreadPool pool(2);
  const pthread_t worker = worker_of(pool);
  std::signal(SIGUSR1, hold);
  pthread_kill(worker, SIGUSR1);
  while (!held) {
    std::this_thread::yield();
  }
  // Lets the worker go if the loop does wait, so that the test fails and does not hang.
  std::promise<void> finished;
  std::thread watchdog([over = finished.get_future()] {
    over.wait_for(std::chrono::seconds(2));
    released = true;
  });
  int done = 0;
  for (int loop = 0; loop < 3; ++loop) {
    pool.run(5, [&](std::int64_t) { ++done; });
  }
  CHECK(done == 15);
  CHECK_FALSE(released);
  finished.set_value();
  watchdog.join();
  std::signal(SIGUSR1, SIG_DFL);
}

#endif
