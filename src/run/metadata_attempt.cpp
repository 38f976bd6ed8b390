#include <utility>

#include "measure/metadata_time.h"
#include "measure/small_changes.h"
#include "run/attempt.h"
#include "run/watch.h"
#include "verify/metadata_proof.h"

namespace lora_bench {
namespace {

class MetadataAttempt final : public Attempt {
 public:
  MetadataAttempt(const CaseRequest& request, Targets& targets, MetadataStep step)
      : Attempt(request, targets),
        step_(std::move(step)),
        alone_(request.alone),
        backend_(watched(request.backend.backend, pulse)) {
    memory = watched(targets.memory(space), pulse);
  }

  void ask() override {
    support = metadata_support(*backend_, step_.problem, facts);
    outcome.numerics = "integers";
  }

  void prove_and_time() override {
    const MetadataBuilder& builder = *backend_->metadata();
    if (spec.verify.enabled) {
      outcome.verdict = verify_metadata(step_, builder, *memory, relations);
    } else {
      outcome.verdict = not_verified();
    }
    if (!clock || (spec.verify.enabled && outcome.verdict->status != Status::kPassed)) {
      return;  // nothing is timed that was not proved right
    }
    MetadataMeasureRequest request{.step = step_,
                                   .settings = spec.measure,
                                   .builder = builder,
                                   .check = nullptr,
                                   .others = {},
                                   .stop = interrupted,
                                   .alone = alone_};
    if (spec.verify.enabled) {
      request.check = [this](const EngineStep& engine, const auto& outputs) {
        return wrong_metadata(step_.problem, engine, outputs);
      };
      request.others = steps_of_one_change(step_, drawn_secret());
      for (OtherStep& other : other_steps(step_)) {
        request.others.push_back(std::move(other.engine));
      }
    }
    outcome.op_time = measure_metadata(request, *memory, *clock, facts);
  }

  [[nodiscard]] std::int64_t needed_bytes(bool timing) const override {
    return timing ? metadata_bytes(step_, spec.measure.cache, facts.cache_bytes)
                  : metadata_bytes(step_, CacheMode::kHot, facts.cache_bytes);
  }
  [[nodiscard]] std::shared_ptr<Clock> make_clock(LaunchMode mode) const override {
    return space == Space::kHost ? std::shared_ptr<Clock>(make_host_clock())
                                 : std::shared_ptr<Clock>(make_device_clock(mode));
  }

 private:
  MetadataStep step_;
  bool alone_;
  std::shared_ptr<const Backend> backend_;
};

}  // namespace

std::shared_ptr<Attempt> make_metadata_attempt(const CaseRequest& request, Targets& targets,
                                               MetadataStep step) {
  return std::make_shared<MetadataAttempt>(request, targets, std::move(step));
}

}  // namespace lora_bench
