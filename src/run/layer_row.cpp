#include "run/layer_row.h"

#include <fmt/format.h>
#include <algorithm>
#include <optional>
#include <utility>

#include "core/bytes.h"
#include "core/units.h"
#include "measure/layer_time.h"
#include "measure/small_changes.h"
#include "ops/backends.h"
#include "ops/cublaslt_library.h"
#include "ops/fused_layer.h"
#include "run/attempt.h"
#include "run/describe.h"
#include "run/watch.h"
#include "verify/layer_proof.h"

namespace lora_bench {

namespace {

constexpr double kMicrosecondsPerSecond = 1e6;

}  // namespace

void describe_layer(Row& row, const LayerProblem& problem, Comm comm) {
  const ShardedLayer& layer = problem.layer;
  row.layer_kind = name(layer.kind);
  row.tp = layer.tp;
  row.fully_sharded = layer.fully_sharded;
  row.comm = name(comm);
  const ExchangedBytes sent = exchanged_bytes(problem);
  row.comm_bytes = sent.h + sent.y;
  row.content = sha256(fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", row.content, *row.layer_kind,
                                   layer.tp, layer.fully_sharded, layer.kv_heads, problem.base_bias,
                                   problem.missing_slices, layer.gather_output, layer.input_split))
                    .substr(0, 16);
  if (problem.skip_bias_add || layer.kind == LayerKind::kLogits) {
    row.content = sha256(fmt::format("{}|{}|{}|{}|{}", row.content, problem.skip_bias_add,
                                     layer.padding_unit, problem.soft_cap, problem.logit_scale))
                      .substr(0, 16);
  }
  if (comm != Comm::kNone) {
    row.content = sha256(fmt::format("{}|{}", row.content, name(comm))).substr(0, 16);
  }
  const LayerWork work = count_layer_work(shard_problem(problem, 0));
  row.bytes = work.layer.bytes;
  row.weight_bytes = work.layer.weight_bytes;
  row.flops = work.layer.flops;
}

void add_layer_measurement(Row& row, const LayerMeasurement& measurement) {
  add_measurement(row, measurement.layer);
  if (!measurement.together) {
    row.shard = measurement.shard;
  }
  if (measurement.comm_s) {
    row.comm_us = *measurement.comm_s * kMicrosecondsPerSecond;
    row.comm_h_us = *measurement.comm_h_s * kMicrosecondsPerSecond;
  }
  row.base_us = measurement.base_s * kMicrosecondsPerSecond;
  row.tax_noise_us = measurement.tax_noise_s * kMicrosecondsPerSecond;
  const double tax_us = *row.time_us - *row.base_us;
  if (tax_us <= *row.tax_noise_us) {  // which is no less than a tax below 0
    warn(row, fmt::format("tax < noise ({} us)", format_figure(*row.tax_noise_us)));
    return;
  }
  if (measurement.shrink_s && measurement.expand_s) {
    row.shrink_us = *measurement.shrink_s * kMicrosecondsPerSecond;
    row.expand_us = *measurement.expand_s * kMicrosecondsPerSecond;
    row.gap_us = tax_us - *row.shrink_us - *row.expand_us;
  }
  row.tax_us = tax_us;
  row.tax_pct = 100 * tax_us / *row.base_us;
}

void add_layer_floor(Row& row, const LayerProblem& problem, const MeasureSettings& settings,
                     const Ceilings& ceilings) {
  const ShardProblem part = shard_problem(problem, row.shard.value_or(0));
  const LayerWork work = count_layer_work(part);
  const Floor layer = floor_of(work.layer, part.lora, settings.cache, ceilings);
  const Floor base = floor_of(work.base, part.lora, settings.cache, ceilings);
  judge_floor(row, layer);
  if (row.base_us && work.base.bytes > 0) {  // of too quick a base the tax is too large
    judge_part(row, "base_us of ", *row.base_us, row.tax_noise_us.value_or(0), base);
  }
  // A measured curve may fall where it should rise.
  row.tax_floor_us = std::max(0.0, layer.seconds - base.seconds) * kMicrosecondsPerSecond;
  if (row.tax_us && *row.tax_floor_us > 0) {
    row.tax_ratio = *row.tax_us / *row.tax_floor_us;
  }
}

namespace {

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

}  // namespace

LayerHome LayerPlaces::home() const {
  LayerHome home;
  for (std::size_t place = 0; place < memories.size(); ++place) {
    home.places.push_back(
        {*base[place], *lora[place], *memories[place], gpus, static_cast<std::int64_t>(place)});
  }
  home.communicator = communicator;
  return home;
}

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

namespace {

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

  std::string backend_name_;
  bool leaves_to_base_;  // `auto` is whatever is ours and quickest; others are to run themselves
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
    judge(row, Status::kSkipped, std::move(why));
    return;
  }
  const auto attempt = std::make_shared<LayerAttempt>(request, targets, std::move(problem));
  row.overlap = name(attempt->overlap());
  run_attempt(row, attempt, request, targets);
}

}  // namespace lora_bench
