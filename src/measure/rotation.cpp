#include "measure/rotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "core/dtype.h"
#include "core/error.h"
#include "core/units.h"
#include "measure/ceilings.h"
#include "measure/measure.h"
#include "ops/backends.h"
#include "ops/cpu_kernels.h"
#include "ops/thread_pool.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kMostUploaded = std::int64_t{2} << 30;  // bytes; more take seconds
// A device fills this in milliseconds with what nobody reads, a host in seconds.
constexpr std::int64_t kMostOnDevice = std::int64_t{32} << 30;
// On a host more sets than this take longer to make, and to go round, than to evict the caches
// before each sample.
constexpr std::int64_t kMostHostSets = 32;

// Of what rotates with the weights, or of what does not.
std::int64_t allocated_bytes(const Problem& problem, bool per_slot) {
  std::int64_t bytes = 0;
  for (const Operand& operand : operands_of(problem)) {
    bytes += operand.per_slot == per_slot ? operand.bytes() : 0;
  }
  return bytes;
}

std::int64_t weight_allocation_bytes(const Problem& problem) {
  return allocated_bytes(problem, true);
}

std::int64_t activation_allocation_bytes(const Problem& problem) {
  return allocated_bytes(problem, false);
}

// Of a set of so many bytes: the slots in use (OperandSets).
std::int64_t uploaded_bytes(const Problem& problem, std::int64_t allocated) {
  const std::int64_t of_slot =
      weight_allocation_bytes(problem) / std::max<std::int64_t>(problem.slots, 1);
  return std::max<std::int64_t>(allocated - of_slot * (problem.slots - problem.plan.active()), 1);
}

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

std::int64_t touched_bytes(const Problem& problem, CacheMode cache) {
  const Work work = count_work(problem);
  switch (cache) {
    case CacheMode::kWeightsCold:
      return work.weight_bytes;
    case CacheMode::kCold:
      return work.bytes;
    case CacheMode::kHot:
      return 0;
  }
  return 0;
}

std::int64_t rotating_allocation_bytes(const Problem& problem, CacheMode cache) {
  switch (cache) {
    case CacheMode::kWeightsCold:
      return weight_allocation_bytes(problem);
    case CacheMode::kCold:
      return weight_allocation_bytes(problem) + activation_allocation_bytes(problem);
    case CacheMode::kHot:
      return 0;
  }
  return 0;
}

std::int64_t shared_allocation_bytes(const Problem& problem, CacheMode cache) {
  return weight_allocation_bytes(problem) + activation_allocation_bytes(problem) -
         rotating_allocation_bytes(problem, cache);
}

std::int64_t rotation_sets(const Problem& problem, CacheMode cache, std::int64_t cache_bytes) {
  if (cache == CacheMode::kHot) {
    return 1;
  }
  const std::int64_t touched = touched_bytes(problem, cache);
  if (touched == 0) {
    return 2;  // of weights that no row uses
  }
  return std::clamp<std::int64_t>(3 * cache_bytes / touched + 1, 2, kMaxRotationSets);
}

std::int64_t affordable_sets(const Problem& problem, const Backend& backend, CacheMode cache,
                             std::int64_t cache_bytes, Memory& memory) {
  const std::int64_t most = memory.space() == Space::kHost ? kMostHostSets : kMaxRotationSets;
  const std::int64_t wanted = std::min(rotation_sets(problem, cache, cache_bytes), most);
  const std::int64_t available = memory.available_bytes();
  const std::int64_t prepared = prepared_bytes(backend, problem);
  const std::int64_t spare = prepared > 0 ? weight_allocation_bytes(problem) + prepared : 0;
  const std::int64_t least = measurement_bytes(problem, cache, cache_bytes) +
                             backend.workspace_bytes(problem) + prepared + spare;
  if (least > available) {
    throw CaseError(fmt::format("timing needs {} of memory, {} are available",
                                format_bytes(static_cast<double>(least)),
                                format_bytes(static_cast<double>(available))));
  }
  const std::int64_t one = rotating_allocation_bytes(problem, cache) + prepared +
                           (cache == CacheMode::kCold ? backend.workspace_bytes(problem) : 0) + 1;
  const std::int64_t uploaded = uploaded_bytes(problem, one);
  const std::int64_t room = std::min(memory.space() == Space::kHost ? kMostUploaded : kMostOnDevice,
                                     (available - least) / 2);
  return std::clamp<std::int64_t>(1 + std::min(kMostUploaded / uploaded, room / one), 1, wanted);
}

bool needs_eviction(const Problem& problem, CacheMode cache, std::int64_t sets,
                    std::int64_t cache_bytes) {
  const std::int64_t touched = touched_bytes(problem, cache);
  return cache != CacheMode::kHot && touched > 0 && sets * touched <= 3 * cache_bytes;
}

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
