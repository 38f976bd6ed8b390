#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "layers/layer_engine.h"
#include "measure/layer_time.h"
#include "measure/small_changes.h"
#include "ops/backends.h"
#include "ops/cublaslt_library.h"
#include "ops/fused_layer.h"
#include "run/attempt.h"
#include "run/watch.h"
#include "verify/layer_proof.h"

namespace lora_bench {

namespace {

// The backends, memories and GPUs that a layer runs with, with every call that may hang stamped in
// the pulse.
struct LayerPlaces {
  std::vector<std::shared_ptr<const Backend>> base, lora;  // one for all shards, or one for each
  std::vector<std::shared_ptr<Memory>> memories;
  std::shared_ptr<const GpuGroup> gpus;  // of comm nccl
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Communicator>
      connected;  // of comm nccl the same without a pulse, for other cases
  [[nodiscard]] LayerHome home() const;
};

// Each made while its GPU is the current one: what it holds of CUDA belongs to that.
void add_gpu(LayerPlaces& places, const Selected& lora, std::int64_t rank,
             const std::shared_ptr<Pulse>& pulse) {
  const CurrentGpu current(static_cast<int>(rank));
  const auto watched_there = [&](std::shared_ptr<const Backend> backend) {
    return on_gpu(watched(std::move(backend), pulse), places.gpus, rank);
  };
  places.base.push_back(watched_there(make_base_product(Space::kDevice, BaseAlgorithm::kFirst)));
  places.lora.push_back(
      watched_there(rank == 0 ? lora.backend : select_backend(lora.name).backend));
  places.memories.push_back(watched(places.gpus->memory(rank), pulse));
}

LayerHome LayerPlaces::home() const {
  LayerHome home;
  for (std::size_t place = 0; place < memories.size(); ++place) {
    home.places.push_back(
        {*base[place], *lora[place], *memories[place], gpus, static_cast<std::int64_t>(place)});
  }
  home.communicator = communicator;
  return home;
}

// All but a communicator that is not there yet, whose making may hang: `connect` makes that one.
LayerPlaces layer_places(const CaseRequest& request, Targets& targets,
                         const std::shared_ptr<Pulse>& pulse) {
  LayerPlaces places;
  const Space space = request.backend.backend->space();
  if (request.spec.setup.comm == Comm::kNone) {
    places.base.push_back(watched(
        std::shared_ptr<const Backend>(make_base_product(space, request.spec.setup.base_algorithm)),
        pulse));
    places.lora.push_back(watched(request.backend.backend, pulse));
    places.memories.push_back(watched(targets.memory(space), pulse));
    places.communicator = make_local_communicator(space);
    return places;
  }
  places.gpus = targets.gpus(request.spec.setup.tp);
  for (std::int64_t rank = 0; rank < request.spec.setup.tp; ++rank) {
    add_gpu(places, request.backend, rank, pulse);
  }
  places.connected = targets.communicator(request.spec.setup.tp);
  return places;
}

void connect(LayerPlaces& places, const std::shared_ptr<Pulse>& pulse) {
  if (places.gpus == nullptr) {
    return;
  }
  if (places.connected == nullptr) {
    const std::int64_t before = pulse->enter();
    places.connected = make_nccl_communicator(places.gpus);
    pulse->leave(before);
  }
  places.communicator = watched(places.connected, pulse);
}

class LayerAttempt final : public Attempt {
 public:
  LayerAttempt(const CaseRequest& request, Targets& targets, LayerProblem layer)
      : Attempt(request, targets),
        backend_name_(request.backend.backend->name()),
        leaves_to_base_(backend_name_ == "auto"),
        problem_(std::move(layer)),
        places_(layer_places(request, targets, pulse)) {
    problem_.bias_in_product = base_product_adds_bias(space);
    problem_.overlap =
        spec.setup.comm == Comm::kNone
            ? chosen_overlap(spec.setup.overlap, problem_, *places_.base.front(), leaves_to_base_)
            : Overlap::kSerial;
    memory = places_.memories.front();
    outcome.layer = problem_;
  }

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

 private:
  void ask_of_shard(const ShardProblem& part, const LayerHome& home);
  [[nodiscard]] bool prove(LayerTensors& tensors, const LayerEngine& loaded,
                           reference::LayerRows& oracle);
  void time(LayerTensors& tensors, const LayerEngine& loaded, const reference::LayerRows& oracle);
  [[nodiscard]] reference::LayerRows oracle_of(LayerTensors& tensors,
                                               const std::vector<std::int64_t>& rows) const {
    return layer_oracle(problem_, tensors, layer_arithmetic(problem_, places_.home()), rows);
  }

  std::string backend_name_;
  bool leaves_to_base_;  // `auto` is whatever is ours and quickest; others are to run themselves
  LayerProblem problem_;
  LayerPlaces places_;
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
    const std::string why =
        leaves_to_base_
            ? why_not_fused(problem_, home.base())
            : fmt::format(
                  "layer.overlap fused: the base's launch makes the adapters' part, and {} none; "
                  "backend auto, or another overlap",
                  backend_name_);
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
  outcome.numerics = fmt::format(
      "base{}: {}{}; adapters: {}{}", problem_.overlap == Overlap::kFused ? " alone" : "",
      home.space() == Space::kHost ? "cpu: " : "", home.base().numerics(base).summation,
      of_lora.summation, told_of(problem_, part, home.base()));
  if (const std::string version = home.communicator->version(); !version.empty()) {
    outcome.numerics += fmt::format("; exchanges: {}", version);
  }
}

bool LayerAttempt::prove(LayerTensors& tensors, const LayerEngine& loaded,
                         reference::LayerRows& oracle) {
  if (!spec.verify.enabled) {
    outcome.verdict = not_verified();
    return true;
  }
  const LayerHome home = places_.home();
  const auto of_rows = [&](const std::vector<std::int64_t>& rows) {
    return oracle_of(tensors, rows);
  };
  oracle = of_rows(sample_rows(problem_.lora, spec.verify.max_rows, spec.seed));
  LayerEngine engine(problem_, home.places);
  engine.load_from(loaded);
  outcome.verdict =
      prove_layer(engine, loaded, problem_, tensors, oracle, home, Level::kBounded, {of_rows, {}});
  if (outcome.verdict->failure) {
    const LayerTensors before = draw_earlier_tensors(problem_, Fill::kBounded, spec.seed);
    name_fault(*outcome.verdict, {problem_, tensors, before}, oracle, outputs_of(engine));
  }
  if (relations) {
    add_relations(*outcome.verdict, problem_, tensors, home, oracle);
  }
  return outcome.verdict->status == Status::kPassed;
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
    outcome.layer_time = measure_layer_together(request, home, *clock, facts);
    return;
  }
  outcome.layer_time = measure_layer(request, *memory, *clock, facts);
  if (!outcome.layer_time->layer.interrupted) {
    outcome.plan_s = plan_seconds(problem_.lora, *memory, *clock, facts);
  }
}

void LayerAttempt::prove_and_time() {
  const LayerHome home = places_.home();
  if (spec.verify.enabled && !clock) {
    VerifyOptions options;
    options.max_rows = spec.verify.max_rows;
    options.seed = spec.seed;
    options.relations = relations;
    outcome.verdict = verify_layer(problem_, home, options);
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

std::string why_no_places(const CaseRequest& request) {
  const Selected& lora = request.backend;
  const bool on_host = lora.backend->space() == Space::kHost;
  if (request.spec.setup.comm == Comm::kNccl) {
    if (on_host) {
      return fmt::format("comm nccl gives each shard a GPU, and {} runs on the host", lora.name);
    }
    if (!lora.plugin.empty()) {
      return "comm nccl: a plugin may keep what belongs to one GPU";
    }
    if (const std::string why = why_no_nccl_communicator(request.spec.setup.tp); !why.empty()) {
      return "comm nccl: " + why;
    }
  }
  const std::string why = on_host ? "" : why_no_cublaslt();
  return why.empty() ? "" : fmt::format("the base product of a layer: {}", why);
}

std::shared_ptr<Attempt> make_layer_attempt(const CaseRequest& request, Targets& targets,
                                            LayerProblem problem) {
  return std::make_shared<LayerAttempt>(request, targets, std::move(problem));
}

}  // namespace lora_bench
