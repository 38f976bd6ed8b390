#include "run/layer_row.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "measure/layer_time.h"
#include "measure/plan_time.h"
#include "measure/small_changes.h"
#include "ops/backends.h"
#include "ops/fused_layer.h"
#include "run/attempt.h"
#include "run/describe.h"
#include "run/layer_places.h"
#include "run/watch.h"
#include "verify/layer_proof.h"

namespace lora_bench {
namespace {

class LayerAttempt final : public Attempt {
 public:
  LayerAttempt(const CaseRequest& request, Targets& targets, LayerProblem layer)
      : Attempt(request, targets),
        problem_(std::move(layer)),
        places_(layer_places(request, targets, pulse)) {
    problem_.bias_in_product = base_product_adds_bias(space);
    problem_.overlap = spec.setup.comm == Comm::kNone
                           ? chosen_overlap(spec.setup.overlap, problem_, *places_.base.front())
                           : Overlap::kSerial;
    memory = places_.memories.front();
  }

  [[nodiscard]] Overlap overlap() const { return problem_.overlap; }

  void ask() override;
  void prove_and_time() override;
  void asked(Targets& targets) override {
    if (places_.gpus != nullptr) {
      targets.communicator(problem_.layer.tp) = places_.connected;
    }
  }
  [[nodiscard]] std::int64_t needed_bytes(bool) const override {
    return layer_measurement_bytes(problem_, spec.measure.cache, facts.cache_bytes);
  }
  [[nodiscard]] std::shared_ptr<Clock> make_clock(LaunchMode mode) const override {
    return space == Space::kHost     ? make_host_clock()
           : places_.gpus == nullptr ? make_device_clock(mode)
                                     : make_gpu_group_clock(places_.gpus, mode);
  }
  void add_measured(Row& row) const override {
    if (measurement_) {
      add_layer_measurement(row, *measurement_);
      add_plan_time(row, plan_s);
    }
  }
  void add_floor(Row& row, const Ceilings& ceilings) const override {
    add_layer_floor(row, problem_, spec.measure, ceilings);
  }

 private:
  void ask_of_shard(const ShardProblem& part, const LayerHome& home);
  [[nodiscard]] bool prove(LayerTensors& tensors, const LayerEngine& loaded,
                           reference::LayerRows& oracle);
  void time(LayerTensors& tensors, const LayerEngine& loaded, const reference::LayerRows& oracle);
  [[nodiscard]] reference::LayerRows oracle_of(LayerTensors& tensors,
                                               const std::vector<std::int64_t>& rows) const {
    return layer_oracle(problem_, tensors, layer_arithmetic(problem_, places_.home()), rows);
  }

  LayerProblem problem_;
  LayerPlaces places_;
  std::optional<LayerMeasurement> measurement_;
};

// What is rounded beyond the base and what the adapters add to it.
std::string told_of(const LayerProblem& problem, const ShardProblem& part, const Backend& base) {
  switch (problem.overlap) {
    case Overlap::kDelta:
      return fmt::format("; their delta rounded to {} before it is added",
                         name(problem.lora.dtype[Role::kY]));
    case Overlap::kFused:
      return base.fused()->left_over(part.base, part.lora)
                 ? "; neither rounded before the sum, but the base of rows left to an expand"
                 : "; neither rounded before the sum";
    case Overlap::kEpilogue:
      return fmt::format("; their delta rounded to {} before the base adds it, itself not rounded",
                         name(problem.lora.dtype[Role::kY]));
    default:
      return "";
  }
}

void LayerAttempt::ask_of_shard(const ShardProblem& part, const LayerHome& home) {
  const auto ask_for = [&](const Backend& backend, const Problem& its) {
    if (support.yes) {
      support = backend.supports(its, facts);
    }
  };
  if (!part.looks_up) {
    ask_for(home.base(), part.base);
  }
  if (part.base_on_delta) {
    ask_for(home.base(), *part.base_on_delta);
  }
  ask_for(home.lora(), part.lora);
  if (part.expand) {
    ask_for(home.lora(), *part.expand);
  }
}

void LayerAttempt::ask() {
  connect(places_, pulse);
  const LayerHome home = places_.home();
  if (problem_.overlap == Overlap::kFused) {
    const std::string why = why_not_fused(problem_, home.base());
    support = {why.empty(), why};
  }
  for (std::int64_t rank = 0; rank < problem_.layer.tp; ++rank) {
    ask_of_shard(shard_problem(problem_, rank), home);
  }
  if (!support.yes) {
    return;
  }
  const ShardProblem part = shard_problem(problem_, 0);
  const Problem& base = part.base_on_delta ? *part.base_on_delta : part.base;
  const Numerics of_lora = numerics_of_adapters(problem_, part, home.base(), home.lora());
  numerics = fmt::format(
      "base{}: {}{}; adapters: {}{}", problem_.overlap == Overlap::kFused ? " alone" : "",
      home.space() == Space::kHost ? "cpu: " : "", home.base().numerics(base).summation,
      of_lora.summation, told_of(problem_, part, home.base()));
  if (const std::string version = home.communicator->version(); !version.empty()) {
    numerics += fmt::format("; exchanges: {}", version);
  }
}

bool LayerAttempt::prove(LayerTensors& tensors, const LayerEngine& loaded,
                         reference::LayerRows& oracle) {
  if (!spec.verify.enabled) {
    verdict = not_verified();
    return true;
  }
  const LayerHome home = places_.home();
  const auto of_rows = [&](const std::vector<std::int64_t>& rows) {
    return oracle_of(tensors, rows);
  };
  oracle = of_rows(sample_rows(problem_.lora, spec.verify.max_rows, spec.seed));
  LayerEngine engine(problem_, home.places);
  engine.load_from(loaded);
  verdict =
      prove_layer(engine, loaded, problem_, tensors, oracle, home, Level::kBounded, {of_rows, {}});
  if (verdict->failure) {
    const LayerTensors before = draw_earlier_tensors(problem_, Fill::kBounded, spec.seed);
    name_fault(*verdict, {problem_, tensors, before}, oracle, outputs_of(engine));
  }
  if (relations) {
    add_relations(*verdict, problem_, tensors, home, oracle);
  }
  return verdict->status == Status::kPassed;
}

void LayerAttempt::time(LayerTensors& tensors, const LayerEngine& loaded,
                        const reference::LayerRows& oracle) {
  const LayerHome home = places_.home();
  LayerMeasureRequest request{.problem = problem_,
                              .loaded = loaded,
                              .settings = spec.measure,
                              .base = home.base(),
                              .lora = home.lora(),
                              .check = nullptr,
                              .tensors = nullptr,
                              .check_rows = nullptr,
                              .stop = interrupted};
  if (spec.verify.enabled) {
    request.check = [&](const LayerEngine& left) {
      // Rows that no one knew while time was taken, too.
      const auto of_rows = [&](const std::vector<std::int64_t>& rows) {
        return oracle_of(tensors, rows);
      };
      const Verdict found = compare_layer(left, problem_, oracle, Level::kBounded,
                                          {of_rows, any_layer_rows(problem_, drawn_secret())});
      return found.status == Status::kPassed ? "" : found.message;
    };
    request.tensors = &tensors;
    request.check_rows = [&](const LayerEngine& left, const LayerProblem& as,
                             const std::vector<std::int64_t>& rows) {
      return wrong_rows(left, as, tensors, layer_arithmetic(problem_, home), rows);
    };
  }
  if (spec.setup.comm != Comm::kNone) {
    measurement_ = measure_layer_together(request, home, *clock, facts);
    return;
  }
  measurement_ = measure_layer(request, *memory, *clock, facts);
  if (!measurement_->layer.interrupted) {
    plan_s = plan_seconds(problem_.lora, *memory, *clock, facts);
  }
}

void LayerAttempt::prove_and_time() {
  const LayerHome home = places_.home();
  if (spec.verify.enabled && !clock) {
    VerifyOptions options;
    options.max_rows = spec.verify.max_rows;
    options.seed = spec.seed;
    options.relations = relations;
    verdict = verify_layer(problem_, home, options);
    return;
  }
  LayerTensors tensors = draw_layer_tensors(problem_, Fill::kBounded, spec.seed);
  LayerEngine loaded(problem_, home.places);
  load_layer(loaded, problem_, tensors);
  reference::LayerRows oracle;
  // Nothing is timed that was not proved right.
  if (prove(tensors, loaded, oracle) && clock) {
    time(tensors, loaded, oracle);
  }
}

}  // namespace

void layer_row(Row& row, LayerProblem problem, const CaseRequest& request, Targets& targets) {
  if (std::string why = why_no_places(request); !why.empty()) {
    skip(row, std::move(why));
    return;
  }
  const auto attempt = std::make_shared<LayerAttempt>(request, targets, std::move(problem));
  row.overlap = name(attempt->overlap());
  run_attempt(row, attempt, request, targets);
}

}  // namespace lora_bench
