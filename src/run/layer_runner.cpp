#include "run/layer_runner.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "measure/layer_together.h"
#include "measure/plan_time.h"
#include "measure/small_changes.h"
#include "ops/base_product.h"
#include "ops/fused_layer.h"
#include "run/describe.h"
#include "run/interrupt.h"
#include "run/layer_places.h"
#include "run/layer_row.h"
#include "run/row_outcome.h"
#include "run/watch.h"
#include "verify/layer_proof.h"

namespace lora_bench {
namespace {

// Everything the working thread touches, so that a hung backend can be left behind.
struct LayerAttempt {
  LayerAttempt(Case of, LayerProblem layer) : spec(std::move(of)), problem(std::move(layer)) {}

  Case spec;
  LayerProblem problem;
  std::shared_ptr<Pulse> pulse = std::make_shared<Pulse>();
  LayerPlaces places;
  std::shared_ptr<Clock> clock;  // null = proof only
  bool relations = false;
  DeviceFacts facts;
  Support support;
  std::string numerics;
  std::optional<Verdict> verdict;
  std::optional<LayerMeasurement> measurement;
  std::optional<double> plan_s;
};

// What is rounded beyond the base and what the adapters add to it.
std::string told_of(const LayerProblem& problem, const ShardProblem& part, const Backend& base) {
  switch (problem.overlap) {
    case Overlap::kDelta:
      return fmt::format("; their delta rounded to {} before it is added",
                         name(problem.lora.dtype));
    case Overlap::kFused:
      return base.fused()->left_over(part.base, part.lora)
                 ? "; neither rounded before the sum, but the base of rows left to an expand"
                 : "; neither rounded before the sum";
    case Overlap::kEpilogue:
      return fmt::format("; their delta rounded to {} before the base adds it, itself not rounded",
                         name(problem.lora.dtype));
    default:
      return "";
  }
}

void ask_layer(LayerAttempt& attempt) {
  connect(attempt.places, attempt.pulse);
  const LayerHome home = attempt.places.home();
  if (attempt.problem.overlap == Overlap::kFused) {
    const std::string why = why_not_fused(attempt.problem, home.base());
    attempt.support = {why.empty(), why};
  }
  for (std::int64_t rank = 0; rank < attempt.problem.layer.tp && attempt.support.yes; ++rank) {
    const ShardProblem part = shard_problem(attempt.problem, rank);
    if (!part.looks_up) {
      attempt.support = home.base().supports(part.base, attempt.facts);
    }
    if (attempt.support.yes && part.base_on_delta) {
      attempt.support = home.base().supports(*part.base_on_delta, attempt.facts);
    }
    if (attempt.support.yes) {
      attempt.support = home.lora().supports(part.lora, attempt.facts);
    }
    if (attempt.support.yes && part.expand) {
      attempt.support = home.lora().supports(*part.expand, attempt.facts);
    }
  }
  if (attempt.support.yes) {
    const ShardProblem part = shard_problem(attempt.problem, 0);
    const Problem& base = part.base_on_delta ? *part.base_on_delta : part.base;
    const Numerics of_lora = numerics_of_adapters(attempt.problem, part, home.base(), home.lora());
    attempt.numerics = fmt::format(
        "base{}: {}{}; adapters: {}{}", attempt.problem.overlap == Overlap::kFused ? " alone" : "",
        home.space() == Space::kHost ? "cpu: " : "", home.base().numerics(base).summation,
        of_lora.summation, told_of(attempt.problem, part, home.base()));
    if (const std::string version = home.communicator->version(); !version.empty()) {
      attempt.numerics += fmt::format("; exchanges: {}", version);
    }
  }
}

void time_layer(LayerAttempt& attempt, const LayerEngine& loaded, LayerTensors& tensors,
                const reference::LayerRows& oracle) {
  const LayerProblem& problem = attempt.problem;
  const LayerHome home = attempt.places.home();
  const auto of_rows = [&](const std::vector<std::int64_t>& rows) {
    return layer_oracle(problem, tensors, layer_arithmetic(problem, home), rows);
  };
  LayerMeasureRequest request{.problem = problem,
                              .loaded = loaded,
                              .settings = attempt.spec.measure,
                              .base = home.base(),
                              .lora = home.lora(),
                              .check = nullptr,
                              .tensors = nullptr,
                              .check_rows = nullptr,
                              .stop = interrupted};
  if (attempt.spec.verify.enabled) {
    request.check = [&](const LayerEngine& left) {
      // Rows that no one knew while time was taken, too.
      const Verdict verdict = compare_layer(left, problem, oracle, Level::kBounded,
                                            {of_rows, any_layer_rows(problem, drawn_secret())});
      return verdict.status == Status::kPassed ? "" : verdict.message;
    };
    request.tensors = &tensors;
    request.check_rows = [&](const LayerEngine& left, const LayerProblem& as,
                             const std::vector<std::int64_t>& rows) {
      return wrong_rows(left, as, tensors, layer_arithmetic(problem, home), rows);
    };
  }
  Memory& memory = home.places.front().memory;
  if (attempt.spec.setup.comm != Comm::kNone) {
    attempt.measurement = measure_layer_together(request, home, *attempt.clock, attempt.facts);
    return;
  }
  attempt.measurement = measure_layer(request, memory, *attempt.clock, attempt.facts);
  if (!attempt.measurement->layer.interrupted) {
    attempt.plan_s = plan_seconds(problem.lora, memory, *attempt.clock, attempt.facts);
  }
}

void prove_and_time_layer(LayerAttempt& attempt) {
  const LayerProblem& problem = attempt.problem;
  const LayerHome home = attempt.places.home();
  const VerifySettings& verify = attempt.spec.verify;
  if (verify.enabled && !attempt.clock) {
    VerifyOptions options;
    options.max_rows = verify.max_rows;
    options.seed = attempt.spec.seed;
    options.relations = attempt.relations;
    attempt.verdict = verify_layer(problem, home, options);
    return;
  }
  LayerTensors tensors = draw_layer_tensors(problem, Fill::kBounded, attempt.spec.seed);
  LayerEngine loaded(problem, home.places);
  load_layer(loaded, problem, tensors);
  reference::LayerRows oracle;
  const auto of_rows = [&](const std::vector<std::int64_t>& rows) {
    return layer_oracle(problem, tensors, layer_arithmetic(problem, home), rows);
  };
  if (verify.enabled) {
    oracle = of_rows(sample_rows(problem.lora, verify.max_rows, attempt.spec.seed));
    LayerEngine engine(problem, home.places);
    engine.load_from(loaded);
    attempt.verdict =
        prove_layer(engine, loaded, problem, tensors, oracle, home, Level::kBounded, {of_rows, {}});
    if (attempt.verdict->failure) {
      const LayerTensors before = draw_earlier_tensors(problem, Fill::kBounded, attempt.spec.seed);
      name_fault(*attempt.verdict, {problem, tensors, before}, oracle, outputs_of(engine));
    }
    if (attempt.relations) {
      add_relations(*attempt.verdict, problem, tensors, home, oracle);
    }
    if (attempt.verdict->status != Status::kPassed) {
      return;  // nothing is timed that was not proved right
    }
  } else {
    attempt.verdict = Verdict{};
    attempt.verdict->message = "not verified (verify.enabled is false)";
  }
  if (!attempt.clock) {
    return;  // neither proved nor timed
  }
  time_layer(attempt, loaded, tensors, oracle);
}

std::shared_ptr<Clock> clock_of_layers(const LayerPlaces& places, Space space, LaunchMode mode) {
  return space == Space::kHost    ? make_host_clock()
         : places.gpus == nullptr ? make_device_clock(mode)
                                  : make_gpu_group_clock(places.gpus, mode);
}

bool layer_worked(Row& row, const std::shared_ptr<LayerAttempt>& attempt,
                  void (*work)(LayerAttempt&)) {
  return came_back(
      row, [attempt, work] { work(*attempt); }, *attempt->pulse, attempt->spec.verify.timeout_s);
}

void skip(Row& row, std::string why) {
  row.status = Status::kSkipped;
  row.message = std::move(why);
}

}  // namespace

void layer_row(Row& row, LayerProblem problem, const CaseRequest& request, Targets& targets) {
  const Space space = request.backend.backend->space();
  if (space == Space::kHost) {
    row.mode = "host";
  }
  if (std::string why = why_no_places(request); !why.empty()) {
    skip(row, std::move(why));
    return;
  }
  problem.bias_in_product = base_product_adds_bias(space);
  const auto pulse = std::make_shared<Pulse>();
  LayerPlaces places = layer_places(request, targets, pulse);
  problem.overlap = request.spec.setup.comm == Comm::kNone
                        ? chosen_overlap(request.spec.setup.overlap, problem, *places.base.front())
                        : Overlap::kSerial;
  row.overlap = name(problem.overlap);
  const auto attempt = std::make_shared<LayerAttempt>(request.spec, problem);
  attempt->pulse = pulse;
  attempt->places = std::move(places);
  attempt->facts = targets.facts(space);
  attempt->relations = request.relations || request.spec.verify.relations;
  if (!layer_worked(row, attempt, ask_layer)) {
    return;
  }
  if (attempt->places.gpus != nullptr) {
    targets.communicator(problem.layer.tp) = attempt->places.connected;
  }
  if (!attempt->support.yes) {
    skip(row, attempt->support.why_not);
    return;
  }
  const std::int64_t needed =
      layer_measurement_bytes(problem, request.spec.measure.cache, attempt->facts.cache_bytes);
  if (std::string why = why_no_room(needed, attempt->places.memories.front()->available_bytes());
      !why.empty()) {
    skip(row, std::move(why));
    return;
  }
  row.numerics = attempt->numerics;
  if (request.timing && request.spec.measure.enabled) {
    attempt->clock =
        watched(clock_of_layers(attempt->places, space, request.spec.measure.mode), attempt->pulse);
  }
  if (!layer_worked(row, attempt, prove_and_time_layer)) {
    return;
  }
  add_verdict(row, *attempt->verdict);
  if (attempt->measurement) {
    add_layer_measurement(row, *attempt->measurement);
    add_plan_time(row, attempt->plan_s);
  }
  if (attempt->clock) {
    judge_time(row, space, targets, [&](Row& judged, const Ceilings& ceilings) {
      add_layer_floor(judged, problem, request.spec.measure, ceilings);
    });
    add_thresholds(row, request.thresholds);
  }
}

}  // namespace lora_bench
