#include <algorithm>
#include <map>
#include <utility>

#include "measure/quantise_time.h"
#include "measure/small_changes.h"
#include "run/attempt.h"
#include "run/watch.h"
#include "verify/quantise_proof.h"

namespace lora_bench {
namespace {

class QuantiseAttempt final : public Attempt {
 public:
  QuantiseAttempt(const CaseRequest& request, Targets& targets, const QuantiseStep& step)
      : Attempt(request, targets),
        step_(step),
        alone_(request.alone),
        backend_(watched(request.backend.backend, pulse)) {
    memory = watched(targets.memory(space), pulse);
  }

  void ask() override {
    support = quantise_support(*backend_, step_.problem, facts);
    outcome.numerics = "bit for bit";
  }

  void prove_and_time() override {
    const Quantiser& quantiser = *backend_->quantiser();
    outcome.verdict = spec.verify.enabled ? verify_quantise(step_, quantiser, *memory, relations)
                                          : not_verified();
    if (!clock || (spec.verify.enabled && outcome.verdict->status != Status::kPassed)) {
      return;  // nothing is timed that was not proved right
    }
    const QuantiseProblem& problem = step_.problem;
    QuantiseMeasureRequest request{
        .step = step_,
        .settings = spec.measure,
        .quantiser = quantiser,
        .steps = {draw_quantise_inputs(problem, step_.seed, XGaps::kNan)},
        .check = nullptr,
        .stop = interrupted,
        .alone = alone_};
    std::map<std::size_t, QuantiseArrays> promised;  // of each step, once for all sets
    if (spec.verify.enabled) {
      // Numbers that nobody could foresee, then those that show what is kept of a launch.
      request.steps.push_back(draw_quantise_inputs(problem, drawn_secret(), XGaps::kNan));
      for (OtherNumbers& other : other_numbers(step_, request.steps.front(), drawn_secret())) {
        request.steps.push_back(std::move(other.inputs));
      }
      request.check = [&](std::size_t step, const QuantiseArrays& outputs) {
        if (!promised.contains(step)) {
          promised.emplace(step, promised_codes(problem, request.steps[step]));
        }
        return compare_codes(problem, promised.at(step), outputs).first;
      };
    }
    outcome.op_time = measure_quantise(request, *memory, *clock, facts);
  }

  [[nodiscard]] std::int64_t needed_bytes(bool timing) const override {
    return quantise_bytes(step_.problem, timing ? spec.measure.cache : CacheMode::kHot,
                          facts.cache_bytes);
  }
  [[nodiscard]] std::shared_ptr<Clock> make_clock(LaunchMode mode) const override {
    return space == Space::kHost ? std::shared_ptr<Clock>(make_host_clock())
                                 : std::shared_ptr<Clock>(make_device_clock(mode));
  }

 private:
  QuantiseStep step_;
  bool alone_;
  std::shared_ptr<const Backend> backend_;
};

}  // namespace

std::shared_ptr<Attempt> make_quantise_attempt(const CaseRequest& request, Targets& targets,
                                               const QuantiseStep& step) {
  return std::make_shared<QuantiseAttempt>(request, targets, step);
}

}  // namespace lora_bench
