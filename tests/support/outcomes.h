#pragma once

#include "measure/statistics.h"
#include "run/row_of.h"

namespace lora_bench::test {

// One sample of a quiet machine.
inline Measurement timed(double time_us, double noise_us = 0) {
  Measurement measurement;
  measurement.samples_s = {time_us * 1e-6};
  measurement.summary = summarize(measurement.samples_s);
  measurement.noise_s = noise_us * 1e-6;
  return measurement;
}

inline LayerMeasurement timed_beside(double base_us, double time_us, double tax_noise_us) {
  LayerMeasurement measurement;
  measurement.layer = timed(time_us);
  measurement.base_s = base_us * 1e-6;
  measurement.tax_noise_s = tax_noise_us * 1e-6;
  return measurement;
}

inline Outcome proved_and(const Measurement& op_time) {
  Outcome outcome{.verdict = Verdict{}, .op_time = op_time};
  outcome.verdict->status = Status::kPassed;
  return outcome;
}

inline Outcome proved_and(const LayerMeasurement& layer_time) {
  Outcome outcome{.verdict = Verdict{}, .layer_time = layer_time};
  outcome.verdict->status = Status::kPassed;
  return outcome;
}

inline CaseStep step_of(const Problem& problem) { return {problem, {}}; }
inline CaseStep step_of(const LayerProblem& layer) { return {layer.lora, layer}; }

// Of a case that says nothing but what it computes.
inline Row row_of(const CaseStep& step, const Outcome& outcome, const Case& spec = {}) {
  const Selected selected;
  return lora_bench::row_of({.spec = spec, .backend = selected}, step, outcome);
}

}  // namespace lora_bench::test
