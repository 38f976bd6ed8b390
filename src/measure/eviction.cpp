#include "measure/eviction.h"

#include <atomic>

#include "ops/cpu_kernels.h"
#include "ops/thread_pool.h"

namespace lora_bench {
namespace {

// Every core reads all of it: caches that are not shared must lose their contents too.
std::uint64_t read_on_every_core(const void* from, std::int64_t bytes) {
  ThreadPool& pool = shared_thread_pool();
  std::atomic<std::uint64_t> total{0};
  pool.run(pool.threads(), [&](std::int64_t) { total += cpu_kernels().read_stream(from, bytes); });
  return total;
}

}  // namespace

Eviction::Eviction(Memory& memory, std::int64_t cache_bytes)
    : memory_(memory), buffer_(memory, 3 * cache_bytes) {
  if (cache_bytes > 0 && memory_.space() == Space::kHost) {
    memory_.fill(buffer_.data(), std::byte{1}, buffer_.bytes());
  }
}

void Eviction::run() {
  if (buffer_.bytes() == 0) {
    return;
  }
  if (memory_.space() == Space::kHost) {
    read_ += read_on_every_core(buffer_.data(), buffer_.bytes());
    return;
  }
  memory_.fill(buffer_.data(), std::byte{1}, buffer_.bytes());
  memory_.synchronize();
}

}  // namespace lora_bench
