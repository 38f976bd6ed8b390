#pragma once

#include <memory>
#include <vector>

#include "measure/layer_time.h"
#include "ops/backends.h"
#include "verify/layer_proof.h"

namespace lora_bench {

// Four tokens, one without an adapter, of adapters of ranks 8 and 3.
inline LayerProblem row_layer(std::int64_t tp, bool fully_sharded) {
  const ShardedLayer layer{.kind = LayerKind::kRow,
                           .in_features = 64,
                           .widths = {32},
                           .max_rank = 8,
                           .tp = tp,
                           .fully_sharded = fully_sharded};
  Problem lora;
  lora.dtype = OperandDtypes(Dtype::kBf16);
  lora.tokens = 4;
  lora.slots = 2;
  lora.max_rank = 8;
  lora.rank = {8, 3};
  lora.scale = {2.0F, 0.5F};
  const std::vector<std::int32_t> ids{1, 0, -1, 0};
  lora.plan = make_plan(ids, lora.slots);
  return make_layer_problem(layer, lora);
}

inline MeasureSettings so_many_samples(int samples) {
  MeasureSettings settings;
  settings.warmup_ms = 0;
  settings.min_samples = samples;
  settings.max_samples = samples;
  settings.min_time_ms = 0;
  return settings;
}

inline MeasureSettings six_samples() { return so_many_samples(6); }

// Times and checks a layer of these tensors on the host as `run` does; `together`: each shard in a
// memory of its own.
inline LayerMeasurement timed_layer(const LayerProblem& problem, LayerTensors& tensors,
                                    Clock& clock, const Backend& lora,
                                    const MeasureSettings& settings, bool together,
                                    std::unique_ptr<Backend> base = make_cpu_backend({1, ""})) {
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
