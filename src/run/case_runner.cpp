#include "run/case_runner.h"

#include <fmt/format.h>

#include <chrono>

#include "core/error.h"
#include "core/units.h"
#include "measure/measure.h"
#include "run/describe.h"
#include "run/interrupt.h"
#include "run/watch.h"
#include "verify/verify.h"

namespace lora_bench {
namespace {

// Everything the working thread touches, owned here, so that a hung backend can be left behind.
struct Work {
  Case spec;
  Problem problem;
  std::shared_ptr<Pulse> pulse = std::make_shared<Pulse>();
  std::shared_ptr<const Backend> backend;
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Clock> clock;  // null = proof only
  DeviceFacts facts;
  bool relations = false;
  std::optional<Verdict> verdict;
  std::optional<Measurement> measurement;
};

// What verifying and measuring hold at once, with room for the oracle's copies on the host.
std::int64_t needed_bytes(const Problem& problem, const Case& spec, const DeviceFacts& facts,
                          bool timing) {
  const std::int64_t proof = tensor_bytes(problem);
  const std::int64_t timed =
      timing ? measurement_bytes(problem, spec.measure.cache, facts.cache_bytes) : 0;
  return std::max(proof, timed);
}

std::string check_output(const Problem& problem, const Numerics& numerics, const Tensors& tensors,
                         const std::vector<std::byte>& got) {
  constexpr std::int64_t kRowsAfterTiming = 16;
  const Comparison comparison = compare_output(problem, tensors, numerics, got.data(),
                                               sample_rows(problem, kRowsAfterTiming, 1));
  if (comparison.wrong == 0) {
    return "";
  }
  const Mismatch& first = comparison.first.front();
  return fmt::format("{} of {} elements; token {}, column {}: expected {}, got {}",
                     comparison.wrong, comparison.compared, first.token, first.column,
                     first.expected, first.got);
}

void prove_and_time(Work& work) {
  if (work.spec.verify.enabled) {
    work.verdict = verify(work.problem, *work.backend, *work.memory,
                          {.relations = work.relations || work.spec.verify.relations,
                           .max_rows = work.spec.verify.max_rows,
                           .seed = work.spec.seed});
    if (work.verdict->status != Status::kPassed) {
      return;  // nothing is timed that was not proved right
    }
  } else {
    work.verdict = Verdict{};
    work.verdict->message = "not verified (verify.enabled is false)";
  }
  if (!work.clock) {
    return;
  }
  const Numerics numerics = work.backend->numerics(work.problem);
  MeasureRequest request{.problem = work.problem,
                         .settings = work.spec.measure,
                         .seed = work.spec.seed,
                         .check = nullptr,
                         .stop = interrupted};
  if (work.spec.verify.enabled) {
    request.check = [&](const Tensors& tensors, const std::vector<std::byte>& got) {
      return check_output(work.problem, numerics, tensors, got);
    };
  }
  work.measurement = measure(request, *work.backend, *work.memory, *work.clock, work.facts);
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

std::shared_ptr<Work> prepare(const CaseRequest& request, const Problem& problem,
                              Targets& targets) {
  const Space space = request.backend.backend->space();
  const auto work = std::make_shared<Work>();
  work->spec = request.spec;
  work->problem = problem;
  work->backend = watched(request.backend.backend, work->pulse);
  work->memory = watched(targets.memory(space), work->pulse);
  work->facts = targets.facts(space);
  work->relations = request.relations;
  if (request.timing && request.spec.measure.enabled) {
    work->clock = watched(make_clock(space, request.spec.measure.mode), work->pulse);
  }
  return work;
}

void fill_row(Row& row, const Work& work, const CaseRequest& request, Targets& targets) {
  add_verdict(row, *work.verdict);
  if (work.measurement) {
    add_measurement(row, *work.measurement);
  }
  if (work.clock) {
    add_floor(row, work.problem, request.spec.measure,
              targets.ceilings(request.backend.backend->space()));
    add_thresholds(row, request.thresholds);
  }
}

}  // namespace

Row run_case(const CaseRequest& request, Targets& targets) {
  const auto started = std::chrono::steady_clock::now();
  const Case& spec = request.spec;
  const Problem problem = make_problem(spec, draw_batch(spec), draw_adapters(spec));
  Row row = describe_case(spec, problem, request.backend.name);
  row.repro = repro_command(spec, request.backend.name, request.overrides);
  if (!request.backend.backend) {
    return skipped(std::move(row), request.backend.why_not_here);
  }
  const Backend& backend = *request.backend.backend;
  const DeviceFacts& facts = targets.facts(backend.space());
  if (backend.space() == Space::kHost) {
    row.mode = "host";  // graphs and streams are the GPU's
  }
  if (const Support support = backend.supports(problem, facts); !support.yes) {
    return skipped(std::move(row), support.why_not);
  }
  const std::int64_t needed = needed_bytes(problem, spec, facts, request.timing);
  const std::int64_t available = targets.memory(backend.space())->available_bytes();
  if (needed > available) {
    return skipped(std::move(row), fmt::format("needs {} of memory, {} are free",
                                               format_bytes(static_cast<double>(needed)),
                                               format_bytes(static_cast<double>(available))));
  }
  row.numerics = backend.numerics(problem).summation;
  const std::shared_ptr<Work> work = prepare(request, problem, targets);
  try {
    if (run_watched([work] { prove_and_time(*work); }, *work->pulse, spec.verify.timeout_s) ==
        Ended::kHung) {
      row.status = Status::kHung;
      row.message = fmt::format("did not return within {} s", spec.verify.timeout_s);
    } else {
      fill_row(row, *work, request, targets);
    }
  } catch (const EnvironmentError&) {
    throw;
  } catch (const std::exception& error) {
    row.status = Status::kError;
    row.message = error.what();
  } catch (...) {
    row.status = Status::kError;
    row.message = "the backend threw something that is no std::exception";
  }
  row.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return row;
}

}  // namespace lora_bench
