#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/memory.h"
#include "measure/clock.h"
#include "ops/backend.h"
#include "run/case_runner.h"
#include "run/row_of.h"
#include "run/target.h"
#include "run/watch.h"
#include "verify/verify.h"
#include "workload/problem.h"

namespace lora_bench {

// One backend on one case. It owns everything that the working thread touches, so that a backend
// that hangs can be left behind with it.
class Attempt {
 public:
  Attempt(const CaseRequest& request, Targets& targets);
  virtual ~Attempt() = default;
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  // On the working thread, and may throw and hang as a backend may: whether the backend takes the
  // case and what it declares; then the proof, and the time where there is a clock.
  virtual void ask() = 0;
  virtual void prove_and_time() = 0;

  // On the thread that waits, between these and after them.
  virtual void asked(Targets&) {}
  [[nodiscard]] virtual std::int64_t needed_bytes(bool timing) const = 0;
  [[nodiscard]] virtual std::shared_ptr<Clock> make_clock(LaunchMode mode) const = 0;

  Case spec;
  std::shared_ptr<Pulse> pulse = std::make_shared<Pulse>();
  Space space;
  DeviceFacts facts;
  bool relations;
  std::shared_ptr<Memory> memory;
  std::shared_ptr<Clock> clock;  // null = proof only
  Support support;
  Outcome outcome;  // numerics, proof and times: the working thread's, until it has come back
};

// Of a whole layer: proves it with all its shards, then times each alone beside its base, or all
// together.
[[nodiscard]] std::shared_ptr<Attempt> make_layer_attempt(const CaseRequest& request,
                                                          Targets& targets, LayerProblem problem);
// Of op metadata.
[[nodiscard]] std::shared_ptr<Attempt> make_metadata_attempt(const CaseRequest& request,
                                                             Targets& targets, MetadataStep step);
// Of op quantise.
[[nodiscard]] std::shared_ptr<Attempt> make_quantise_attempt(const CaseRequest& request,
                                                             Targets& targets,
                                                             const QuantiseStep& step);
// Why a layer has no place here, "" when it has.
[[nodiscard]] std::string why_no_places(const CaseRequest& request);

// Asks, proves and times. Throws what the backend throws; `outcome` has then what came of it
// before.
void run_attempt(Outcome& outcome, const std::shared_ptr<Attempt>& attempt,
                 const CaseRequest& request, const CaseStep& step, Targets& targets);

// What stands in place of a verdict where none was asked for.
[[nodiscard]] Verdict not_verified();

// Launches the backend once more, as cold as it was timed. Throws what it throws; counters that
// cannot be read are no fault of it.
[[nodiscard]] Counted count_launch(const Problem& problem, const CaseRequest& request,
                                   Targets& targets);

}  // namespace lora_bench
