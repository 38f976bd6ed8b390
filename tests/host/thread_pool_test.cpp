#include "ops/thread_pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
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
