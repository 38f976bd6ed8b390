#include "measure/lone_launch.h"

#include <algorithm>
#include <chrono>

namespace lora_bench {
namespace {

constexpr double kWarmSeconds = 0.1;

// Two at least, so that another set is launched before the one that is watched.
std::int64_t sets_of(const Problem& problem, CacheMode cache, const Backend& backend,
                     Memory& memory, const DeviceFacts& device) {
  return cache == CacheMode::kHot
             ? 1
             : std::max<std::int64_t>(
                   affordable_sets(problem, backend, cache, device.cache_bytes, memory), 2);
}

}  // namespace

LoneLaunch::LoneLaunch(const Problem& problem, std::uint64_t seed, CacheMode cache,
                       const Backend& backend, Memory& memory, const DeviceFacts& device)
    : problem_(problem),
      backend_(backend),
      memory_(memory),
      tensors_(draw_tensors(problem, Fill::kTiming, seed)),
      sets_(memory, problem, tensors_, backend, cache,
            sets_of(problem, cache, backend, memory, device)),
      eviction_(memory, needs_eviction(problem, cache, sets_.count(), device.cache_bytes)
                            ? device.cache_bytes
                            : 0) {
  memory_.synchronize();
}

void LoneLaunch::launch(std::int64_t set) const {
  backend_.launch(problem_, sets_.operands(set), {});
}

void LoneLaunch::launch() const { launch(0); }

void LoneLaunch::warm_up() {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (std::int64_t set = 0; set < sets_.count(); ++set) {
      launch(set);
    }
    memory_.synchronize();
  } while (std::chrono::steady_clock::now() - start < std::chrono::duration<double>(kWarmSeconds));
}

void LoneLaunch::prepare() {
  sets_.restore_y();
  memory_.synchronize();
  eviction_.run();
  for (std::int64_t set = std::min<std::int64_t>(1, sets_.count() - 1); set < sets_.count();
       ++set) {
    launch(set);
  }
  memory_.synchronize();
}

}  // namespace lora_bench
