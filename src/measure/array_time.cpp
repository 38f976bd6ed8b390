#include "measure/array_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "measure/rotation.h"
#include "measure/sampling.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kMostSets = 256;
constexpr std::int64_t kMostArrayLaunches = 2048;  // in a sequence

std::int64_t room_for(const ArrayLaunch& arrays) {
  std::int64_t bytes = 0;
  for (const ArrayShapes* shapes : {&arrays.inputs, &arrays.outputs}) {
    for (const ArrayShape& array : *shapes) {
      bytes += array.bytes();
    }
  }
  return bytes;
}

std::int64_t sets_for(const ArrayLaunch& arrays, CacheMode cache, std::int64_t cache_bytes) {
  constexpr std::int64_t kCaches = 3;
  if (cache != CacheMode::kCold) {
    return cache == CacheMode::kHot ? 1 : 2;
  }
  return std::clamp<std::int64_t>(
      kCaches * cache_bytes / std::max<std::int64_t>(1, arrays.touched_bytes), 2, kMostSets);
}

// So many sets may still lie in the cache.
bool needs_evicting(CacheMode cache, std::int64_t sets) {
  return cache == CacheMode::kCold && sets == kMostSets;
}

class ArrayBench {
 public:
  ArrayBench(const ArrayMeasureRequest& request, Memory& memory, Clock& clock,
             const DeviceFacts& device)
      : request_(request),
        memory_(memory),
        clock_(clock),
        evicts_(
            needs_evicting(request.settings.cache,
                           sets_for(request.arrays, request.settings.cache, device.cache_bytes))),
        eviction_(memory, evicts_ ? device.cache_bytes : 0) {
    const std::int64_t sets = sets_for(request.arrays, request.settings.cache, device.cache_bytes);
    for (std::int64_t set = 0; set < sets; ++set) {
      sets_.emplace_back(memory, request.arrays.inputs, request.arrays.outputs);
    }
    put_step(0);
  }

  Measurement run() {
    Measurement result;
    const auto sets = static_cast<std::int64_t>(sets_.size());
    result.rotation_sets = sets;
    // No array is a weight: what is not to be cold lies in the caches, however many sets there are.
    result.rotated_bytes =
        request_.settings.cache == CacheMode::kCold ? sets * request_.arrays.touched_bytes : 0;
    load();
    take_samples(sampling(), clock_, result);
    const Launch separator = request_.alone && !result.interrupted ? clock_.separator() : Launch{};
    if (separator) {
      load_alone(clock_, separator, sequence());
      sample_alone(sampling(), clock_, result);
    } else if (request_.alone && !result.interrupted) {
      result.alone_s = result.summary.median;
      result.alone_noise_s = result.noise_s;
    }
    if (request_.check) {
      result.check_message = check(separator ? kAlone : 0);
      result.check_passed = result.check_message.empty();
    }
    return result;
  }

 private:
  void put_step(std::size_t step) {
    for (ArrayBuffers& set : sets_) {
      set.put_inputs(request_.steps[step]);
    }
  }

  [[nodiscard]] std::vector<Launch> sequence() const {
    std::vector<Launch> launches;
    for (std::int64_t launch = 0; launch < launches_; ++launch) {
      const ArrayOperands& operands =
          sets_[static_cast<std::size_t>(launch) % sets_.size()].operands();
      launches.push_back([this, &operands](Stream stream) { request_.launch(operands, stream); });
    }
    return launches;
  }

  void load() {
    const auto sets = static_cast<std::int64_t>(sets_.size());
    launches_ = sets;
    clock_.load(0, sequence());
    if (!evicts_) {
      constexpr double kTargetSeconds = 200e-6;
      constexpr double kTargetSecondsOnHost = 1e-3;
      static_cast<void>(clock_.run_seconds(0));
      const double seconds = std::max(clock_.run_seconds(0), 1e-9);
      const double target = memory_.space() == Space::kHost ? kTargetSecondsOnHost : kTargetSeconds;
      const std::int64_t most_passes = kMostArrayLaunches / sets;
      const auto passes = static_cast<std::int64_t>(
          std::clamp(target / seconds, 1.0, static_cast<double>(most_passes)));
      launches_ = passes * sets;
    }
    clock_.load(0, sequence());
    clock_.load(1, sequence());
  }

  [[nodiscard]] Sampling sampling() {
    return {.settings = request_.settings,
            .launches = launches_,
            .own_load = own_load(memory_.space()),
            .prepare = [this](int) { eviction_.run(); },
            .stop = request_.stop};
  }

  // What the timed sequences leave, over nothing, then in turn for other steps at the same
  // addresses: over what the step before left.
  std::string check(int last_slot) {
    for (const int slot : {0, last_slot}) {
      for (ArrayBuffers& set : sets_) {
        ArrayBuffers::Contents nothing = set.outputs();
        for (std::vector<std::byte>& array : nothing) {
          std::fill(array.begin(), array.end(), std::byte{0x5B});
        }
        set.put_outputs(nothing);
      }
      const std::string wrong = left_by(slot, 0);
      if (!wrong.empty()) {
        return "left by the timed launches: " + wrong;
      }
    }
    for (std::size_t other = 1; other < request_.steps.size(); ++other) {
      put_step(other);
      const std::string wrong = left_by(0, other);
      if (!wrong.empty()) {
        return "left by the sequence for another step: " + wrong;
      }
    }
    return "";
  }

  std::string left_by(int slot, std::size_t step) {
    memory_.synchronize();
    static_cast<void>(clock_.run_seconds(slot));
    for (const ArrayBuffers& set : sets_) {
      std::string wrong = request_.check(step, set.outputs());
      wrong = wrong.empty() ? set.damage() : wrong;
      if (!wrong.empty()) {
        return wrong;
      }
      if (const std::string changed = set.changed_input(); !changed.empty()) {
        return fmt::format("input {} changed", changed);
      }
    }
    return "";
  }

  const ArrayMeasureRequest& request_;
  Memory& memory_;
  Clock& clock_;
  bool evicts_;
  Eviction eviction_;
  std::vector<ArrayBuffers> sets_;
  std::int64_t launches_ = 1;
};

}  // namespace

Measurement measure_arrays(const ArrayMeasureRequest& request, Memory& memory, Clock& clock,
                           const DeviceFacts& device) {
  return ArrayBench(request, memory, clock, device).run();
}

std::int64_t array_measurement_bytes(const ArrayLaunch& arrays, CacheMode cache,
                                     std::int64_t cache_bytes) {
  // The guards, and up to a page behind them.
  constexpr std::int64_t kAroundArray = 3 * GuardedBuffer::kGuardBytes + kAlignmentBytes;
  constexpr std::int64_t kCachesEvicted = 3;
  const std::int64_t sets = sets_for(arrays, cache, cache_bytes);
  const std::int64_t count = std::ssize(arrays.inputs) + std::ssize(arrays.outputs);
  return sets * (room_for(arrays) + count * kAroundArray) +
         (needs_evicting(cache, sets) ? kCachesEvicted * cache_bytes : 0);
}

}  // namespace lora_bench
