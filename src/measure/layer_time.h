#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "layers/layer_engine.h"
#include "layers/layer_problem.h"
#include "measure/ceilings.h"
#include "measure/measure.h"

namespace lora_bench {

// One shard of a layer, the slowest, by itself, nothing being exchanged while time is taken; or all
// shards together, see measure_layer_together.
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

// The layer with all its shards at once, each where it lies, and all that they exchange; base and
// layer are sampled in turn. The clock is one of all places, its time that of the slowest. Of the
// request, `base` and `lora` are not read.
[[nodiscard]] LayerMeasurement measure_layer_together(const LayerMeasureRequest& request,
                                                      const LayerHome& home, Clock& clock,
                                                      const DeviceFacts& device);

// What timing the shards of a layer alone and timing them together have in common.

constexpr std::int64_t kMostLayerSets = 32;

// Of all shards.
[[nodiscard]] std::int64_t weight_bytes_of_layer(const LayerProblem& problem);
// Whole layers to rotate through: of which the shards of one rank are more than three caches hold.
[[nodiscard]] std::int64_t layer_sets(const LayerProblem& problem, CacheMode cache,
                                      std::int64_t cache_bytes);
// How well the tax is known: half the interval of the median of what each layer's sample took
// longer than the base's before, and no less than what shows that more is amiss: that this median
// is another, that the layer differs from itself by more, or that adapters seem to save time.
[[nodiscard]] double noise_of_tax(const Measurement& measured, double tax_s);
// What launches did to guards and inputs of a layer that was `loaded`; "" = nothing.
[[nodiscard]] std::string damage_to(const LayerEngine& layer, const LayerEngine& loaded);

// One of the layers that were timed.
struct TimedLayer {
  LayerEngine& layer;
  std::function<void()> run;     // the sequence as it is loaded, until all shards have ended
  std::function<void()> record;  // loads the same for what the layer is then
};

// Who keeps what it once computed is quick and right as long as nothing changes. So at the same
// addresses one number of B, of A and of x of few rows is another, then all of x and of the
// adapters in use, and last, in a sequence loaded for it, the batch and the scales. What follows is
// drawn from `secret`. "" = right each time; layer and tensors are then as they were.
[[nodiscard]] std::string remembered_in(const LayerMeasureRequest& request, const TimedLayer& timed,
                                        std::uint64_t secret);

}  // namespace lora_bench
