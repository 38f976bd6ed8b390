#include "run/case_runner.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <new>

#include "core/error.h"
#include "core/units.h"
#include "device/system_files.h"
#include "measure/measure.h"
#include "measure/phases.h"
#include "measure/plan_time.h"
#include "ops/touch_probe.h"
#include "run/counted_row.h"
#include "run/describe.h"
#include "run/interrupt.h"
#include "run/layer_row.h"
#include "run/layer_runner.h"
#include "run/row_outcome.h"
#include "run/watch.h"
#include "verify/scan.h"
#include "verify/verify.h"

namespace lora_bench {
namespace {

// Everything the working thread touches, owned here, so that a hung backend can be left behind.
struct Attempt {
  Attempt(const Case& of, KeptGroundwork shared)
      : spec(of), groundwork(std::move(shared)), problem(groundwork->problem()) {}

  Case spec;
  KeptGroundwork groundwork;
  const Problem& problem;
  std::shared_ptr<Pulse> pulse = std::make_shared<Pulse>();
  std::shared_ptr<const Backend> backend;
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Clock> clock;  // null = proof only
  DeviceFacts facts;
  bool relations = false;
  bool touch = false;
  bool alone = true;
  Support support;
  Numerics declared;
  std::optional<Verdict> verdict;
  std::optional<Measurement> measurement;
  std::optional<Measurement> touch_measurement;
  std::optional<double> plan_s;
};

// What verifying and measuring hold at once, with room for the oracle's copies on the host.
std::int64_t needed_bytes(const Problem& problem, const Case& spec, const DeviceFacts& facts,
                          bool timing) {
  const std::int64_t proof = tensor_bytes(problem);
  const std::int64_t timed =
      timing ? measurement_bytes(problem, spec.measure.cache, facts.cache_bytes) : 0;
  return std::max(proof, timed);
}

// The first place of what is wrong, in the rows of the whole.
std::string told(const Left& left, std::int64_t wrong, std::int64_t compared,
                 const Mismatch& first) {
  const auto token = static_cast<std::size_t>(first.token);
  const std::int64_t before = left.first_columns.empty() ? 0 : left.first_columns[token];
  return fmt::format("{} of {} elements; token {}, column {}: expected {}, got {}", wrong, compared,
                     left.true_rows[token], before + first.column, first.expected, first.got);
}

void ask(Attempt& attempt) {
  attempt.support = attempt.backend->supports(attempt.problem, attempt.facts);
  if (attempt.support.yes) {
    attempt.declared = attempt.backend->numerics(attempt.problem);
  }
}

// A phase is an op of its own and may be other code than its part of the whole. Whether both can be
// timed; what is wrong becomes the verdict, what is not supported a warning.
bool prove_phases(Attempt& attempt) {
  for (const Op op : {Op::kShrink, Op::kExpand}) {
    const Problem phase = half_of(attempt.problem, op);
    if (const Support support = attempt.backend->supports(phase, attempt.facts); !support.yes) {
      attempt.measurement->warnings.push_back(
          fmt::format("no phases: {} alone is not supported: {}", name(op), support.why_not));
      return false;
    }
    if (!attempt.spec.verify.enabled) {
      continue;
    }
    const Verdict verdict = verify(phase, *attempt.backend, *attempt.memory,
                                   {.max_rows = attempt.spec.verify.max_rows});
    if (verdict.status != Status::kPassed) {
      attempt.verdict = verdict;
      attempt.verdict->message = fmt::format("{} alone: {}", name(op), verdict.message);
      return false;
    }
  }
  return true;
}

void prove_and_time(Attempt& attempt) {
  if (attempt.spec.verify.enabled) {
    attempt.verdict = verify(*attempt.groundwork, *attempt.backend, *attempt.memory,
                             {.relations = attempt.relations || attempt.spec.verify.relations,
                              .max_rows = attempt.spec.verify.max_rows,
                              .declared = attempt.declared});
    if (attempt.verdict->status != Status::kPassed) {
      return;  // nothing is timed that was not proved right
    }
  } else {
    attempt.verdict = Verdict{};
    attempt.verdict->message = "not verified (verify.enabled is false)";
  }
  if (!(attempt.backend->numerics(attempt.problem) == attempt.declared)) {
    throw CaseError("numerics declared another thing when it was asked again of the same problem");
  }
  if (!attempt.clock) {
    return;
  }
  // What is looked at after timing is judged by what was declared before the proof.
  const Numerics numerics = attempt.declared;
  MeasureRequest request{.problem = attempt.problem,
                         .settings = attempt.spec.measure,
                         .seed = attempt.spec.seed,
                         .check = nullptr,
                         .stop = interrupted,
                         .alone = attempt.alone};
  if (attempt.spec.verify.enabled) {
    request.check = [&](const Left& left) {
      const bool whole = left.problem.op == attempt.problem.op;
      return check_left(whole ? numerics : attempt.backend->numerics(left.problem), left);
    };
  }
  attempt.measurement =
      measure(request, *attempt.backend, *attempt.memory, *attempt.clock, attempt.facts);
  if (!attempt.measurement->interrupted) {
    attempt.plan_s = plan_seconds(attempt.problem, *attempt.memory, *attempt.clock, attempt.facts);
  }
  request.highest_mhz = attempt.measurement->highest_mhz;
  if (attempt.touch && !attempt.measurement->interrupted) {
    MeasureRequest of_touch = request;
    of_touch.check = nullptr;
    of_touch.alone = false;
    attempt.touch_measurement =
        measure(of_touch, *make_touch_probe(), *attempt.memory, *attempt.clock, attempt.facts);
  }
  if (attempt.spec.measure.phases && attempt.problem.op == Op::kLinear && prove_phases(attempt)) {
    attempt.measurement->phases =
        measure_phases(request, *attempt.backend, *attempt.memory, *attempt.clock, attempt.facts);
  }
}

void fail(Row& row, std::string message) {
  row.status = Status::kError;
  row.message = std::move(message);
}

Row skipped(Row row, std::string why) {
  row.status = Status::kSkipped;
  row.message = std::move(why);
  return row;
}

std::shared_ptr<Clock> make_clock(Space space, LaunchMode mode) {
  return space == Space::kHost ? std::shared_ptr<Clock>(make_host_clock())
                               : std::shared_ptr<Clock>(make_device_clock(mode));
}

std::shared_ptr<Attempt> prepare(const CaseRequest& request, const KeptGroundwork& groundwork,
                                 Targets& targets) {
  const Space space = request.backend.backend->space();
  const auto attempt = std::make_shared<Attempt>(request.spec, groundwork);
  attempt->backend = watched(request.backend.backend, attempt->pulse);
  attempt->memory = watched(targets.memory(space), attempt->pulse);
  attempt->facts = targets.facts(space);
  attempt->relations = request.relations;
  attempt->touch = request.touch && space == Space::kDevice;
  attempt->alone = request.alone;
  return attempt;
}

void fill_row(Row& row, const Attempt& attempt, const CaseRequest& request, Targets& targets) {
  add_verdict(row, *attempt.verdict);
  if (attempt.measurement) {
    add_measurement(row, *attempt.measurement);
    add_plan_time(row, attempt.plan_s);
    if (attempt.touch_measurement) {
      add_touch_time(row, *attempt.touch_measurement);
    }
  }
  if (attempt.clock) {
    judge_time(row, request.backend.backend->space(), targets,
               [&](Row& judged, const Ceilings& ceilings) {
                 add_floor(judged, attempt.problem, request.spec.measure, ceilings);
               });
    add_thresholds(row, request.thresholds);
  }
}

bool worked(Row& row, const std::shared_ptr<Attempt>& attempt, void (*work)(Attempt&)) {
  return came_back(
      row, [attempt, work] { work(*attempt); }, *attempt->pulse, attempt->spec.verify.timeout_s);
}

void attempt_row(Row& row, const KeptGroundwork& groundwork, const CaseRequest& request,
                 Targets& targets) {
  const Space space = request.backend.backend->space();
  if (space == Space::kHost) {
    row.mode = "host";  // graphs and streams are the GPU's
  }
  const std::shared_ptr<Attempt> attempt = prepare(request, groundwork, targets);
  if (!worked(row, attempt, ask)) {
    return;
  }
  if (!attempt->support.yes) {
    row = skipped(std::move(row), attempt->support.why_not);
    return;
  }
  const std::int64_t needed = needed_bytes(attempt->problem, request.spec, attempt->facts,
                                           request.timing || request.count != nullptr);
  if (std::string why = why_no_room(needed, attempt->memory->available_bytes()); !why.empty()) {
    row = skipped(std::move(row), std::move(why));
    return;
  }
  row.numerics = attempt->declared.summation;
  if (request.timing && request.spec.measure.enabled) {
    attempt->clock = watched(make_clock(space, request.spec.measure.mode), attempt->pulse);
  }
  if (worked(row, attempt, prove_and_time)) {
    fill_row(row, *attempt, request, targets);
    count_row(row, attempt->problem, request, targets);
  }
}

// What is kept of one case: two drawings of its operands and the oracle's values of the sampled
// rows. Of large ones nothing where memory is short; for small ones nobody needs to ask.
std::int64_t most_kept_bytes(const Problem& problem) {
  constexpr std::int64_t kAlways = std::int64_t{64} << 20;
  constexpr std::int64_t kMost = std::int64_t{4} << 30;
  constexpr std::int64_t kShareOfFree = 8;
  return tensor_bytes(problem) < kAlways / 4
             ? kAlways
             : std::clamp(available_memory_bytes() / kShareOfFree, kAlways, kMost);
}

// What is kept, where it is of this very problem; else it goes before anything else is drawn.
KeptGroundwork groundwork_of(const Problem& problem, const CaseRequest& request,
                             KeptGroundwork& kept) {
  const std::uint64_t seed = request.spec.seed;
  if (kept) {
    kept->tell(problem.tuning);
  }
  const bool same = kept && kept->seed() == seed && kept->problem() == problem;
  if (!same || !request.backend.plugin.empty()) {
    kept.reset();
    kept = std::make_shared<Groundwork>(problem, seed, most_kept_bytes(problem));
  }
  return kept;
}

bool may_keep(const Row& row) {
  return row.plugin.empty() && (row.status == Status::kPassed || row.status == Status::kSkipped);
}

}  // namespace

Look check_left(const Numerics& numerics, const Left& left) {
  Look look;
  if (left.rows.empty()) {
    const std::optional<Failure> stray =
        scan_all_rows(left.problem, *left.sets.front(), left.output.data());
    look.wrong = stray
                     ? fmt::format("{}: {}", stray->what,
                                   told(left, stray->wrong, stray->compared, stray->first.front()))
                     : "";
    look.infinite_rows = infinite_rows(left.problem, left.output.data());
    return look;
  }
  const Comparison comparison =
      left.rounds == 1 && left.sets.size() == 1
          ? compare_output(left.problem, *left.sets.front(), numerics, left.output.data(),
                           left.rows, left.first_columns.empty() ? Idle::kZero : Idle::kAsBefore)
          : compare_accumulated(left.problem, left.sets, numerics, left.output.data(), left.rounds,
                                left.rows, left.secret);
  look.compared = comparison.owned;
  look.telling_rows = comparison.telling_rows;
  look.unproved = std::llround(comparison.zero_share * static_cast<double>(comparison.owned));
  look.wrong = comparison.wrong == 0
                   ? ""
                   : told(left, comparison.wrong, comparison.compared, comparison.first.front());
  return look;
}

std::string why_no_room(std::int64_t needed, std::int64_t available) {
  return needed <= available ? ""
                             : fmt::format("needs {} of memory, {} are free",
                                           format_bytes(static_cast<double>(needed)),
                                           format_bytes(static_cast<double>(available)));
}

Row run_case(const CaseRequest& request, Targets& targets, KeptGroundwork& kept) {
  const auto started = std::chrono::steady_clock::now();
  const Case& spec = request.spec;
  const Problem problem = make_problem(spec, draw_batch(spec), draw_adapters(spec));
  Row row = describe_case(spec, problem, request.backend.name);
  row.plugin = request.backend.plugin;
  row.repro = request.repro;
  if (!request.backend.backend) {
    return skipped(std::move(row), request.backend.why_not_here);
  }
  try {
    if (spec.op == Op::kLayer) {
      layer_row(row, layer_of(spec, problem), request, targets);
    } else {
      attempt_row(row, groundwork_of(problem, request, kept), request, targets);
    }
  } catch (const EnvironmentError&) {
    throw;
  } catch (const std::bad_alloc&) {
    fail(row, fmt::format("out of memory; the estimate was {}",
                          format_bytes(static_cast<double>(tensor_bytes(problem)))));
  } catch (const std::exception& error) {
    fail(row, error.what());
  } catch (...) {
    fail(row, "the backend threw something that is no std::exception");
  }
  if (!may_keep(row)) {
    kept.reset();
  }
  row.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return row;
}

}  // namespace lora_bench
