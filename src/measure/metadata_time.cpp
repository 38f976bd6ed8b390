#include "measure/metadata_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "measure/rotation.h"
#include "measure/sampling.h"
#include "ops/metadata_buffers.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kMostSets = 256;
constexpr std::int64_t kMostMetadataLaunches = 2048;  // in a sequence

std::int64_t array_bytes(const MetadataProblem& problem) {
  std::int64_t bytes = 0;
  for (const auto& arrays : {inputs_of(problem), outputs_of(problem)}) {
    for (const MetadataArray& array : arrays) {
      bytes += array.bytes();
    }
  }
  return bytes;
}

// Of the bytes that a launch touches, which may be far fewer than there is room for.
std::int64_t sets_for(const MetadataStep& step, CacheMode cache, std::int64_t cache_bytes) {
  constexpr std::int64_t kCaches = 3;
  if (cache != CacheMode::kCold) {
    return cache == CacheMode::kHot ? 1 : 2;
  }
  return std::clamp<std::int64_t>(
      kCaches * cache_bytes / std::max<std::int64_t>(1, count_metadata_work(step).bytes), 2,
      kMostSets);
}

// So many sets may still lie in the cache.
bool needs_evicting(CacheMode cache, std::int64_t sets) {
  return cache == CacheMode::kCold && sets == kMostSets;
}

class MetadataBench {
 public:
  MetadataBench(const MetadataMeasureRequest& request, Memory& memory, Clock& clock,
                const DeviceFacts& device)
      : request_(request),
        memory_(memory),
        clock_(clock),
        evicts_(needs_evicting(request.settings.cache,
                               sets_for(request.step, request.settings.cache, device.cache_bytes))),
        eviction_(memory, evicts_ ? device.cache_bytes : 0) {
    const std::int64_t sets = sets_for(request.step, request.settings.cache, device.cache_bytes);
    for (std::int64_t set = 0; set < sets; ++set) {
      sets_.emplace_back(memory, request.step.problem);
    }
    put_step(request.step.engine);
  }

  Measurement run() {
    Measurement result;
    const auto sets = static_cast<std::int64_t>(sets_.size());
    result.rotation_sets = sets;
    // No array is a weight: what is not to be cold lies in the caches, however many sets there are.
    result.rotated_bytes = request_.settings.cache == CacheMode::kCold
                               ? sets * count_metadata_work(request_.step).bytes
                               : 0;
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
  void put_step(const EngineStep& engine) {
    for (MetadataBuffers& set : sets_) {
      set.put_inputs(input_bytes(request_.step.problem, engine));
    }
  }

  [[nodiscard]] std::vector<Launch> sequence() const {
    std::vector<Launch> launches;
    for (std::int64_t launch = 0; launch < launches_; ++launch) {
      const MetadataOperands& operands =
          sets_[static_cast<std::size_t>(launch) % sets_.size()].operands();
      launches.push_back([this, &operands](Stream stream) {
        request_.builder.launch(request_.step.problem, operands, stream);
      });
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
      const std::int64_t most_passes = kMostMetadataLaunches / sets;
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
      for (MetadataBuffers& set : sets_) {
        MetadataBuffers::Contents nothing = set.outputs();
        for (std::vector<std::byte>& array : nothing) {
          std::fill(array.begin(), array.end(), std::byte{0x5B});
        }
        set.put_outputs(nothing);
      }
      const std::string wrong = left_by(slot, request_.step.engine);
      if (!wrong.empty()) {
        return "left by the timed launches: " + wrong;
      }
    }
    for (const EngineStep& other : request_.others) {
      put_step(other);
      const std::string wrong = left_by(0, other);
      if (!wrong.empty()) {
        return "left by the sequence for another step: " + wrong;
      }
    }
    return "";
  }

  std::string left_by(int slot, const EngineStep& engine) {
    memory_.synchronize();
    static_cast<void>(clock_.run_seconds(slot));
    for (const MetadataBuffers& set : sets_) {
      std::string wrong = request_.check(engine, set.outputs());
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

  const MetadataMeasureRequest& request_;
  Memory& memory_;
  Clock& clock_;
  bool evicts_;
  Eviction eviction_;
  std::vector<MetadataBuffers> sets_;
  std::int64_t launches_ = 1;
};

}  // namespace

Measurement measure_metadata(const MetadataMeasureRequest& request, Memory& memory, Clock& clock,
                             const DeviceFacts& device) {
  return MetadataBench(request, memory, clock, device).run();
}

std::int64_t metadata_bytes(const MetadataStep& step, CacheMode cache, std::int64_t cache_bytes) {
  const MetadataProblem& problem = step.problem;
  const auto arrays =
      static_cast<std::int64_t>(inputs_of(problem).size() + outputs_of(problem).size());
  // The guards, and up to a page behind them.
  constexpr std::int64_t kAroundArray = 3 * GuardedBuffer::kGuardBytes + kAlignmentBytes;
  constexpr std::int64_t kCachesEvicted = 3;
  const std::int64_t sets = sets_for(step, cache, cache_bytes);
  return sets * (array_bytes(problem) + arrays * kAroundArray) +
         (needs_evicting(cache, sets) ? kCachesEvicted * cache_bytes : 0);
}

Work count_metadata_work(const MetadataStep& step) {
  const MetadataProblem& problem = step.problem;
  const std::vector<std::int32_t>& rows =
      problem.form == Form::kSampler ? step.engine.request_of_sample : step.engine.request_of_token;
  Work work;
  for (const MetadataArray& input : inputs_of(problem)) {
    work.bytes += input.name == "slot_of_request" ? 0 : input.bytes();
  }
  std::unordered_set<std::int32_t> named(rows.begin(), rows.end());
  named.erase(kNoAdapter);
  work.bytes += static_cast<std::int64_t>(named.size() * sizeof(std::int32_t));
  const std::vector<FilledArray> made = make_metadata(problem, step.engine);
  const std::vector<MetadataArray> outputs = outputs_of(problem);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    work.written_bytes += std::ssize(made[i].values) * outputs[i].element_bytes();
  }
  work.bytes += work.written_bytes;
  work.rows = std::count_if(rows.begin(), rows.end(), [](std::int32_t row) { return row >= 0; });
  return work;
}

}  // namespace lora_bench
