#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "layers/layer_engine.h"
#include "layers/layer_tensors.h"
#include "measure/ceilings.h"
#include "measure/measure.h"

namespace lora_bench {

// One shard of a layer, the slowest, by itself, nothing being exchanged while time is taken; or all
// shards together, see layer_together.h.
struct LayerMeasurement {
  Measurement layer;  // its baseline_s are the base without adapters
  bool together = false;
  std::int64_t shard = 0;  // the slowest, alone
  // Together: what is exchanged in the layer, launched by itself, and of that h.
  std::optional<double> comm_s, comm_h_s;
  double base_s = 0;  // median
  double tax_s = 0;   // median of the layer less that of the base
  double tax_noise_s = 0;
  // Where they were asked for: what a layer takes longer with shrink after its base, and with
  // expand after that, each a launch of its own.
  std::optional<double> shrink_s, expand_s;
};

struct LayerMeasureRequest {
  const LayerProblem& problem;
  const LayerEngine& loaded;  // what is timed takes over its weights and input
  const MeasureSettings& settings;
  const Backend& base;
  const Backend& lora;
  // Asked of what the timed launches left in all shards; "" = right. May be empty.
  std::function<std::string(const LayerEngine&)> check;
  // What `loaded` holds; where given, all of it but the base is changed after timing, and put back.
  LayerTensors* tensors = nullptr;
  // Asked then of these rows, which an oracle of the tensors as they are tells; "" = right.
  std::function<std::string(const LayerEngine&, const LayerProblem&,
                            const std::vector<std::int64_t>& rows)>
      check_rows = nullptr;
  std::function<bool()> stop;  // may be empty
};

// Each shard in turn gets its share of the time. What is launched rotates through whole layers, as
// many as `cache` asks for; base and layer are sampled in turn.
[[nodiscard]] LayerMeasurement measure_layer(const LayerMeasureRequest& request, Memory& memory,
                                             Clock& clock, const DeviceFacts& device);
[[nodiscard]] std::int64_t layer_measurement_bytes(const LayerProblem& problem, CacheMode cache,
                                                   std::int64_t cache_bytes);

// What one shard must do: the base alone, and with its adapters, whose weights come on top (x and y
// pass by anyway).
struct LayerWork {
  Work base, layer;
};
[[nodiscard]] LayerWork count_layer_work(const ShardProblem& shard);

}  // namespace lora_bench
