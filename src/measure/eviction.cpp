#include "measure/eviction.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "ops/cpu_kernels.h"
#include "ops/thread_pool.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kBlock = 4096;

// Twice the last cache on the host, where each core's share also is far beyond its own caches; a
// write of three on a device, whose cache may keep what it has in two places.
std::int64_t bytes_to_touch(Space space, std::int64_t cache_bytes) {
  return (space == Space::kHost ? 2 : 3) * cache_bytes / kBlock * kBlock;
}

// Each core reads a share, none two: a core that reads nothing would keep what is in its own
// caches.
std::uint64_t read_on_every_core(const char* from, std::int64_t bytes) {
  ThreadPool& pool = shared_thread_pool();
  const std::int64_t cores = pool.threads();
  std::atomic<std::int64_t> begun{0};
  std::atomic<std::uint64_t> total{0};
  pool.run(cores, [&](std::int64_t core) {
    for (++begun; begun < cores;) {
      std::this_thread::yield();
    }
    const std::int64_t first = bytes / kBlock * core / cores * kBlock;
    const std::int64_t end = bytes / kBlock * (core + 1) / cores * kBlock;
    total += cpu_kernels().read_stream(from + first, end - first);
  });
  return total;
}

}  // namespace

Eviction::Eviction(Memory& memory, std::int64_t cache_bytes)
    : memory_(memory), bytes_(bytes_to_touch(memory.space(), cache_bytes)) {
  if (bytes_ > 0) {
    data_ = memory_.allocate(bytes_);
    // Memory that was never written may be one page of zeros many times over.
    memory_.fill(data_, std::byte{1}, bytes_);
  }
}

Eviction::~Eviction() {
  if (data_ != nullptr) {
    memory_.release(data_);
  }
}

void Eviction::run() {
  if (data_ == nullptr) {
    return;
  }
  if (memory_.space() == Space::kHost) {
    read_ += read_on_every_core(static_cast<const char*>(data_), bytes_);
    return;
  }
  memory_.fill(data_, std::byte{1}, bytes_);
  memory_.synchronize();
}

}  // namespace lora_bench
