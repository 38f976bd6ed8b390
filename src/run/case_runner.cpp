#include "run/case_runner.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <new>

#include "core/error.h"
#include "core/units.h"
#include "device/system_files.h"
#include "measure/measure.h"
#include "ops/backends.h"
#include "ops/device_plan.h"
#include "run/attempt.h"
#include "run/row_of.h"
#include "run/watch.h"
#include "verify/verify.h"

namespace lora_bench {
namespace {

class OpAttempt final : public Attempt {
 public:
  OpAttempt(const CaseRequest& request, Targets& targets, KeptGroundwork shared)
      : Attempt(request, targets),
        groundwork_(std::move(shared)),
        problem_(groundwork_->problem()),
        touch_(request.touch && space == Space::kDevice &&
               make_touch_probe()->supports(problem_, facts_of(space)).yes),
        alone_(request.alone),
        backend_(watched(request.backend.backend, pulse)) {
    if (spec.plan.made_on == MadeOn::kDevice) {
      backend_ = with_device_plan(backend_);
    }
    memory = watched(targets.memory(space), pulse);
  }

  void ask() override;
  void prove_and_time() override;
  [[nodiscard]] std::int64_t needed_bytes(bool timing) const override;
  [[nodiscard]] std::shared_ptr<Clock> make_clock(LaunchMode mode) const override {
    return space == Space::kHost ? std::shared_ptr<Clock>(make_host_clock())
                                 : std::shared_ptr<Clock>(make_device_clock(mode));
  }

 private:
  [[nodiscard]] bool prove();
  [[nodiscard]] bool prove_phases();
  void time();

  KeptGroundwork groundwork_;
  const Problem& problem_;
  bool touch_, alone_;
  std::shared_ptr<const Backend> backend_;
  Numerics declared_;
};

// The first place of what is wrong, in the rows of the whole.
std::string told(const Left& left, std::int64_t wrong, std::int64_t compared,
                 const Mismatch& first) {
  const auto token = static_cast<std::size_t>(first.token);
  const std::int64_t before = left.first_columns.empty() ? 0 : left.first_columns[token];
  return fmt::format("{} of {} elements; token {}, column {}: expected {}, got {}", wrong, compared,
                     left.true_rows[token], before + first.column, first.expected, first.got);
}

void OpAttempt::ask() {
  support = backend_->supports(problem_, facts);
  if (support.yes) {
    declared_ = backend_->numerics(problem_);
    outcome.numerics = declared_.summation;
    if (problem_.h_quantiser && declared_.intermediate != problem_.kept_h()) {
      outcome.numerics +=
          fmt::format("{}h kept in {}, not quantised", outcome.numerics.empty() ? "" : "; ",
                      name(declared_.intermediate));
    }
  }
}

// What verifying and measuring hold at once, with room for the oracle's copies on the host.
std::int64_t OpAttempt::needed_bytes(bool timing) const {
  const std::int64_t timed =
      timing ? measurement_bytes(problem_, spec.measure.cache, facts.cache_bytes) : 0;
  return std::max(tensor_bytes(problem_), timed);
}

bool OpAttempt::prove() {
  if (!spec.verify.enabled) {
    outcome.verdict = not_verified();
    return true;
  }
  outcome.verdict =
      verify(*groundwork_, *backend_, *memory,
             {.relations = relations, .max_rows = spec.verify.max_rows, .declared = declared_});
  return outcome.verdict->status == Status::kPassed;
}

// A phase is an op of its own and may be other code than its part of the whole. Whether both can be
// timed; what is wrong becomes the verdict, what is not supported a warning.
bool OpAttempt::prove_phases() {
  for (const Op op : {Op::kShrink, Op::kExpand}) {
    const Problem phase = half_of(problem_, op);
    if (const Support alone = backend_->supports(phase, facts); !alone.yes) {
      outcome.op_time->warnings.push_back(
          fmt::format("no phases: {} alone is not supported: {}", name(op), alone.why_not));
      return false;
    }
    if (!spec.verify.enabled) {
      continue;
    }
    const Verdict of_phase = verify(phase, *backend_, *memory, {.max_rows = spec.verify.max_rows});
    if (of_phase.status != Status::kPassed) {
      outcome.verdict = of_phase;
      outcome.verdict->message = fmt::format("{} alone: {}", name(op), of_phase.message);
      return false;
    }
  }
  return true;
}

// What is looked at after timing is judged by what was declared before the proof.
void OpAttempt::time() {
  MeasureRequest request{.problem = problem_,
                         .settings = spec.measure,
                         .seed = spec.seed,
                         .check = nullptr,
                         .stop = interrupted,
                         .alone = alone_};
  if (spec.verify.enabled) {
    request.check = [&](const Left& left) {
      const bool whole = left.problem.op == problem_.op;
      return check_left(whole ? declared_ : backend_->numerics(left.problem), left);
    };
  }
  outcome.op_time = measure(request, *backend_, *memory, *clock, facts);
  if (!outcome.op_time->interrupted) {
    outcome.plan_s = plan_seconds(problem_, *memory, *clock, facts);
  }
  if (touch_ && !outcome.op_time->interrupted) {
    MeasureRequest of_touch = request;
    of_touch.check = nullptr;
    of_touch.alone = false;
    outcome.touch_s = measure(of_touch, *make_touch_probe(), *memory, *clock, facts).summary.median;
  }
  if (spec.measure.phases && problem_.op == Op::kLinear && prove_phases()) {
    outcome.op_time->phases = measure_phases(request, *backend_, *memory, *clock, facts);
  }
}

void OpAttempt::prove_and_time() {
  if (!prove()) {
    return;  // nothing is timed that was not proved right
  }
  if (!(backend_->numerics(problem_) == declared_)) {
    throw CaseError("numerics declared another thing when it was asked again of the same problem");
  }
  if (clock) {
    time();
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
  return row.id.plugin.empty() && (row.status == Status::kPassed || row.status == Status::kSkipped);
}

bool may_count(const Row& row) { return row.status == Status::kPassed && !row.interrupted; }

// As far as it comes: what the backend throws is a finding too.
Outcome outcome_of(const CaseRequest& request, const CaseStep& step, Targets& targets,
                   KeptGroundwork& kept) {
  Outcome outcome;
  try {
    if (step.metadata) {
      run_attempt(outcome, make_metadata_attempt(request, targets, *step.metadata), request, step,
                  targets);
    } else if (step.quantise) {
      run_attempt(outcome, make_quantise_attempt(request, targets, *step.quantise), request, step,
                  targets);
    } else if (!step.layer) {
      run_attempt(
          outcome,
          std::make_shared<OpAttempt>(request, targets, groundwork_of(step.op, request, kept)),
          request, step, targets);
      if (request.count && may_count(row_of(request, step, outcome))) {
        outcome.counted = count_launch(step.op, request, targets);
      }
    } else if (std::string why = why_no_places(request); !why.empty()) {
      outcome.end = {Status::kSkipped, std::move(why)};
    } else {
      run_attempt(outcome, make_layer_attempt(request, targets, *step.layer), request, step,
                  targets);
    }
  } catch (const EnvironmentError&) {
    throw;
  } catch (const std::bad_alloc&) {
    outcome.end = {Status::kError,
                   fmt::format("out of memory; the estimate was {}",
                               format_bytes(static_cast<double>(tensor_bytes(step.op))))};
  } catch (const std::exception& error) {
    outcome.end = {Status::kError, error.what()};
  } catch (...) {
    outcome.end = {Status::kError, "the backend threw something that is no std::exception"};
  }
  return outcome;
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
  const CaseStep step = step_of(request.spec);
  if (!request.backend.backend) {
    return row_of(request, step, {.end = {{Status::kSkipped, request.backend.why_not_here}}});
  }
  Row row = row_of(request, step, outcome_of(request, step, targets, kept));
  if (!may_keep(row)) {
    kept.reset();
  }
  row.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return row;
}

}  // namespace lora_bench
