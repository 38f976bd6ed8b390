#include "measure/measure.h"

#include "measure/after_timing.h"
#include "measure/new_inputs.h"
#include "measure/rotation.h"
#include "measure/sampling.h"
#include "measure/small_changes.h"
#include "measure/timed_sequence.h"

namespace lora_bench {
namespace {

// Samples of one backend on one step, and the checks of what was timed.
class StepBench {
 public:
  StepBench(const MeasureRequest& request, const Backend& backend, Memory& memory, Clock& clock,
            const DeviceFacts& device)
      : request_(request), clock_(clock), timed_(request, backend, memory, clock, device) {}

  Measurement run() {
    Measurement result;
    result.rotation_sets = timed_.sets().count();
    result.rotated_bytes =
        result.rotation_sets * touched_bytes(request_.problem, request_.settings.cache);
    timed_.load();
    take_samples(sampling(), clock_, result);
    if (request_.check) {
      check(result);
    } else {
      time_alone(result);
    }
    return result;
  }

 private:
  [[nodiscard]] Sampling sampling() {
    return {.settings = request_.settings,
            .launches = timed_.launches(),
            .own_load = own_load(timed_.memory().space()),
            .prepare = [this](int) { timed_.prepare(); },
            .stop = request_.stop};
  }

  // Whether it took launches of its own: where these never overlap, it is the time that is known.
  bool time_alone(Measurement& result) {
    if (!request_.alone || result.interrupted) {
      return false;
    }
    const Launch separator = clock_.separator();
    if (!separator) {
      result.alone_s = result.summary.median;
      result.alone_noise_s = result.noise_s;
      return false;
    }
    timed_.load_alone(separator);
    sample_alone(sampling(), clock_, result);
    return true;
  }

  // Of rows and sets that nobody knew before.
  [[nodiscard]] AfterTiming looks_now() {
    return {request_, timed_.sets(), request_.secret ? request_.secret() : drawn_secret(), room_};
  }

  void check(Measurement& result) {
    result.check_message = left_by_timed(0);
    if (result.check_message.empty() && !result.interrupted) {
      // Right behind samples: rows are as known as they ever were.
      result.new_inputs = time_new_inputs(timed_, result.summary.median, drawn_secret());
    }
    if (result.check_message.empty() && time_alone(result)) {
      result.check_message = left_by_timed(kAlone);
    }
    if (result.check_message.empty()) {
      result.check_message = wrong_when_run_again(timed_, looks_now(), result);
    }
    result.check_passed = result.check_message.empty();
  }

  // A backend that is right only while it is checked leaves too little.
  std::string left_by_timed(int slot) {
    const AfterTiming looks = looks_now();
    const Launched launched = timed_.run_to_check(slot);
    const std::string wrong = looks.left_by(timed_.tensors(), launched);
    return wrong.empty() ? "" : "left by the timed launches: " + wrong;
  }

  const MeasureRequest& request_;
  Clock& clock_;
  TimedSequence timed_;
  std::vector<std::byte> room_;  // for the output that was looked at last
};

}  // namespace

std::int64_t measurement_bytes(const Problem& problem, CacheMode cache, std::int64_t cache_bytes) {
  const std::int64_t eviction = cache == CacheMode::kHot ? 0 : 3 * cache_bytes;
  return shared_allocation_bytes(problem, cache) + rotating_allocation_bytes(problem, cache) +
         eviction + new_inputs_bytes(problem);
}

bool depends_on_new_inputs(const NewInputs& seen) {
  constexpr double kShare = 0.25;
  return seen.new_s - seen.known_s > kShare * seen.launch_s;
}

Measurement measure(const MeasureRequest& request, const Backend& backend, Memory& memory,
                    Clock& clock, const DeviceFacts& device) {
  return StepBench(request, backend, memory, clock, device).run();
}

}  // namespace lora_bench
