#pragma once

#include <memory>
#include <vector>

#include "measure/layer_together.h"
#include "ops/cpu_backend.h"
#include "verify/layer_proof.h"

namespace lora_bench {

// Times and checks a layer of these tensors on the host as `run` does; `together`: each shard in a
// memory of its own.
inline LayerMeasurement timed_layer(const LayerProblem& problem, LayerTensors& tensors,
                                    Clock& clock, const Backend& lora,
                                    const MeasureSettings& settings, bool together) {
  const std::unique_ptr<Backend> base = make_cpu_backend({1, ""});
  const std::unique_ptr<Memory> memory = make_host_memory();
  const reference::LayerArithmetic arithmetic = layer_arithmetic(problem, *base, lora);
  const reference::LayerRows oracle =
      layer_oracle(problem, tensors, arithmetic, sample_rows(problem.lora, 256, 1));
  std::vector<std::unique_ptr<Memory>> memories;
  LayerHome home = one_home(*base, lora, *memory);
  if (together) {
    home.places.clear();
    for (std::int64_t rank = 0; rank < problem.layer.tp; ++rank) {
      memories.push_back(make_host_memory());
      home.places.push_back({*base, lora, *memories.back()});
    }
  }
  LayerEngine loaded(problem, home.places);
  load_layer(loaded, problem, tensors);
  const LayerMeasureRequest request{
      .problem = problem,
      .loaded = loaded,
      .settings = settings,
      .base = *base,
      .lora = lora,
      .check =
          [&](const LayerEngine& left) {
            const Verdict verdict = compare_layer(left, problem, oracle);
            return verdict.status == Status::kPassed ? "" : verdict.message;
          },
      .tensors = &tensors,
      .check_rows =
          [&](const LayerEngine& left, const LayerProblem& as,
              const std::vector<std::int64_t>& rows) {
            return wrong_rows(left, as, tensors, arithmetic, rows);
          },
      .stop = nullptr};
  return together ? measure_layer_together(request, home, clock, DeviceFacts{})
                  : measure_layer(request, *memory, clock, DeviceFacts{});
}

}  // namespace lora_bench
