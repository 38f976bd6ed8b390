#include "core/blocks.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

namespace lora_bench {

void for_blocks(std::int64_t count, std::int64_t per_block, int threads,
                const std::function<void(std::int64_t, std::int64_t)>& work) {
  std::atomic<std::int64_t> next = 0;
  const auto take_blocks = [&] {
    for (std::int64_t begin = next.fetch_add(per_block); begin < count;
         begin = next.fetch_add(per_block)) {
      work(begin, std::min(count, begin + per_block));
    }
  };
  const std::int64_t most =
      threads > 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t blocks = (count + per_block - 1) / per_block;
  std::vector<std::future<void>> others;
  for (std::int64_t i = 1; i < std::min(most, blocks); ++i) {
    others.push_back(std::async(std::launch::async, take_blocks));
  }
  take_blocks();
  for (std::future<void>& other : others) {
    other.get();
  }
}

}  // namespace lora_bench
