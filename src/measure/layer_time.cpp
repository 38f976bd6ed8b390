#include "measure/layer_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <utility>

#include "core/error.h"
#include "measure/rotation.h"
#include "measure/sampling.h"
#include "measure/small_changes.h"

namespace lora_bench {

std::int64_t weight_bytes_of_layer(const LayerProblem& problem) {
  std::int64_t bytes = 0;
  for (std::int64_t rank = 0; rank < problem.layer.tp; ++rank) {
    bytes += count_layer_work(shard_problem(problem, rank)).layer.weight_bytes;
  }
  return bytes;
}

std::int64_t layer_sets(const LayerProblem& problem, CacheMode cache, std::int64_t cache_bytes) {
  const std::int64_t touched =
      std::max<std::int64_t>(weight_bytes_of_layer(problem) / problem.layer.tp, 1);
  return cache == CacheMode::kHot
             ? 1
             : std::clamp<std::int64_t>(3 * cache_bytes / touched + 1, 2, kMostLayerSets);
}

double noise_of_tax(const Measurement& measured, double tax_s) {
  const Known added = median_difference(measured.samples_s, measured.baseline_s);
  return std::max({added.half_width, std::fabs(added.value - tax_s), measured.noise_s, -tax_s});
}

std::string damage_to(const LayerEngine& layer, const LayerEngine& loaded) {
  std::string damage = layer.damage();
  if (damage.empty()) {
    const std::string input = layer.changed_input(loaded);
    damage = input.empty() ? "" : "input " + input + " was changed";
  }
  return damage;
}

namespace {

constexpr std::int64_t kMostLayerLaunches = 2048;
constexpr double kSequenceSeconds = 1e-3;

std::int64_t allocated_bytes(const LayerProblem& problem) {
  std::int64_t bytes = 0;
  for (std::int64_t rank = 0; rank < problem.layer.tp; ++rank) {
    const ShardProblem part = shard_problem(problem, rank);
    bytes += tensor_bytes(part.lora) + part.base.max_rank * (part.base.in_features + part.room) *
                                           size_bytes(part.base.dtype[Role::kA]);
    bytes += part.expand ? tensor_bytes(*part.expand) : 0;
    bytes += part.delta_apart
                 ? problem.lora.tokens * part.base.max_rank * size_bytes(part.lora.dtype[Role::kY])
                 : 0;
  }
  return bytes;
}

// Makes a whole layer of one of which a shard ran by itself: by what the others do, what all
// exchange and what comes after.
class LayerCompletion {
 public:
  LayerCompletion(const LayerMeasureRequest& request, Memory& memory)
      : request_(request),
        memory_(memory),
        communicator_(make_local_communicator(memory.space())) {}

  void forward(LayerEngine& layer) { layer.forward(*communicator_, Stream{}); }

  // One shard by `run_timed`, as it was timed, the others by themselves.
  template <typename RunTimed>
  void run_whole(LayerEngine& layer, std::int64_t timed, const RunTimed& run_timed) {
    memory_.synchronize();
    for (int turn = 0; turn < (layer.exchanges_h() ? 2 : 1); ++turn) {
      if (turn > 0) {
        layer.exchange_h(*communicator_, Stream{});
      }
      for (std::int64_t rank = 0; rank < layer.shards(); ++rank) {
        if (rank != timed) {
          layer.run_before_h(rank, true, Stream{});
          layer.run_after_h(rank, Stream{});
        }
      }
      memory_.synchronize();
      run_timed();
    }
    exchange_and_end(layer);
    memory_.synchronize();
  }

  // What is wrong in a layer all of whose shards ran as they were timed, "" if nothing. A timed
  // shard expands the h that was exchanged before; what it shrank shows in a y of its own.
  std::string wrong_in(LayerEngine& layer) {
    exchange_and_end(layer);
    std::string wrong = request_.check(layer);
    if (wrong.empty() && layer.exchanges_h()) {
      layer.exchange_h(*communicator_, Stream{});
      for (std::int64_t rank = 0; rank < layer.shards(); ++rank) {
        layer.run_before_h(rank, false, Stream{});
        layer.run_after_h(rank, Stream{});
      }
      exchange_and_end(layer);
      wrong = request_.check(layer);
    }
    return wrong.empty() ? damage_to(layer, request_.loaded) : wrong;
  }

 private:
  // Where the adapters come after the exchange, a timed shard added them to what it had alone: one
  // shard has ended so, and a table is read anew, since they stand in its rows.
  void exchange_and_end(LayerEngine& layer) {
    const ShardProblem& shard = layer.shard(0);
    if (shard.lora_after_y && layer.shards() == 1) {
      return;
    }
    for (std::int64_t rank = 0; shard.looks_up && rank < layer.shards(); ++rank) {
      layer.run_before_h(rank, false, Stream{});
    }
    layer.exchange_y(*communicator_, Stream{});
    for (std::int64_t rank = 0; rank < layer.shards(); ++rank) {
      layer.run_after_y(rank, true, Stream{});
    }
  }

  const LayerMeasureRequest& request_;
  Memory& memory_;
  std::unique_ptr<Communicator> communicator_;
};

class LayerBench {
 public:
  LayerBench(const LayerMeasureRequest& request, Memory& memory, Clock& clock,
             const DeviceFacts& device)
      : request_(request),
        clock_(clock),
        device_(device),
        settings_(request.settings),
        evicts_(settings_.cache != CacheMode::kHot &&
                layer_sets(request.problem, settings_.cache, device.cache_bytes) == kMostLayerSets),
        eviction_(memory, evicts_ ? device.cache_bytes : 0),
        memory_(memory),
        completion_(request, memory) {
    const std::int64_t sets = layer_sets(request.problem, settings_.cache, device.cache_bytes);
    for (std::int64_t set = 0; set < sets; ++set) {
      layers_.emplace_back(request.problem, request.base, request.lora, memory);
      layers_.back().load_from(request.loaded);
      // What a shard gets from the others is there before it is timed alone.
      memory.synchronize();
      completion_.forward(layers_.back());
    }
    const auto shards = static_cast<double>(request.problem.layer.tp);
    settings_.warmup_ms /= shards;
    settings_.min_time_ms /= shards;
    settings_.max_time_ms /= shards;
  }

  LayerMeasurement run() {
    LayerMeasurement slowest;
    for (std::int64_t rank = 0; rank < request_.problem.layer.tp; ++rank) {
      Measurement measured = measure_shard(rank);
      const bool interrupted = measured.interrupted || slowest.layer.interrupted;
      if (rank == 0 || measured.summary.median > slowest.layer.summary.median) {
        slowest.layer = std::move(measured);
        slowest.shard = rank;
      }
      slowest.layer.interrupted = interrupted;
    }
    slowest.base_s = summarize(slowest.layer.baseline_s).median;
    slowest.tax_s = slowest.layer.summary.median - slowest.base_s;
    slowest.tax_noise_s = noise_of_tax(slowest.layer, slowest.tax_s);
    check(slowest.layer, slowest.shard);
    if (settings_.phases && slowest.layer.check_passed && !slowest.layer.interrupted) {
      measure_halves(slowest);
    }
    return slowest;
  }

 private:
  [[nodiscard]] std::vector<Launch> sequence(std::int64_t rank, bool with_lora,
                                             std::int64_t passes) {
    std::vector<Launch> launches;
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      for (LayerEngine& layer : layers_) {
        launches.emplace_back([&layer, rank, with_lora](Stream stream) {
          layer.run_before_h(rank, with_lora, stream);
          if (with_lora) {
            layer.run_after_h(rank, stream);
          }
          layer.run_after_y(rank, with_lora, stream);
        });
      }
    }
    return launches;
  }

  // So many that a sample is long against the clock; one where the caches are emptied before it.
  std::int64_t choose_passes(std::int64_t rank) {
    if (evicts_) {
      return 1;
    }
    clock_.load(0, sequence(rank, false, 1));
    static_cast<void>(clock_.run_seconds(0));
    const double seconds = std::max(clock_.run_seconds(0), 1e-9);
    const auto sets = static_cast<std::int64_t>(layers_.size());
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(kSequenceSeconds / seconds) + 1, 1,
                                    std::max<std::int64_t>(1, kMostLayerLaunches / sets));
  }

  [[nodiscard]] Sampling sampling(std::int64_t launches, std::function<void(int)> prepare) const {
    return {.settings = settings_,
            .launches = launches,
            .own_load = own_load(memory_.space()),
            .prepare = std::move(prepare),
            .stop = request_.stop,
            .against_baseline = true,
            .highest_mhz = highest_mhz_};
  }

  Measurement measure_shard(std::int64_t rank) {
    const std::int64_t passes = choose_passes(rank);
    passes_.push_back(passes);
    clock_.load(0, sequence(rank, false, passes));
    clock_.load(1, sequence(rank, true, passes));
    Measurement measured;
    measured.rotation_sets = static_cast<std::int64_t>(layers_.size());
    measured.rotated_bytes =
        settings_.cache == CacheMode::kHot
            ? 0
            : measured.rotation_sets *
                  count_layer_work(layers_.front().shard(rank)).layer.weight_bytes;
    const auto prepare = [this, rank](int) {
      for (LayerEngine& layer : layers_) {
        layer.poison_h(rank);  // no sample finds the h of the one before
      }
      eviction_.run();
    };
    take_samples(sampling(passes * measured.rotation_sets, prepare), clock_, measured);
    highest_mhz_ = measured.highest_mhz;
    for (LayerEngine& layer : layers_) {
      layer.poison_results(rank);
    }
    static_cast<void>(clock_.run_seconds(1));
    return measured;
  }

  [[nodiscard]] std::vector<Launch> sequence_of_halves(std::int64_t rank, bool expands,
                                                       std::int64_t passes) {
    std::vector<Launch> launches = sequence(rank, false, passes);
    for (std::size_t i = 0; i < launches.size(); ++i) {
      LayerEngine& layer = layers_[i % layers_.size()];
      launches[i] = [&layer, rank, expands, base = launches[i]](Stream stream) {
        base(stream);
        layer.run_half(rank, Op::kShrink, stream);
        if (expands) {
          layer.run_half(rank, Op::kExpand, stream);
        }
      };
    }
    return launches;
  }

  // Base and shrink are sampled in turn with base, shrink and expand, on the weights of the layer
  // as cold as there.
  void measure_halves(LayerMeasurement& measured) {
    if (const std::string why = why_no_halves(measured.shard); !why.empty()) {
      measured.layer.warnings.push_back(why);
      return;
    }
    const std::int64_t passes = measured.layer.launches / static_cast<std::int64_t>(layers_.size());
    clock_.load(0, sequence_of_halves(measured.shard, false, passes));
    clock_.load(1, sequence_of_halves(measured.shard, true, passes));
    Measurement halves;
    const auto prepare = [this](int) { eviction_.run(); };
    take_samples(sampling(measured.layer.launches, prepare), clock_, halves);
    if (halves.interrupted) {
      return;
    }
    const double with_shrink_s = summarize(halves.baseline_s).median;
    measured.shrink_s = std::max(0.0, with_shrink_s - measured.base_s);
    measured.expand_s = std::max(0.0, halves.summary.median - with_shrink_s);
    check_halves();
  }

  [[nodiscard]] std::string why_no_halves(std::int64_t rank) const {
    const ShardProblem& part = layers_.front().shard(rank);
    for (const Op op : {Op::kShrink, Op::kExpand}) {
      const Problem half = half_of(op == Op::kExpand && part.expand ? *part.expand : part.lora, op);
      if (const Support support = request_.lora.supports(half, device_); !support.yes) {
        return fmt::format("no phases: {} alone is not supported: {}", name(op), support.why_not);
      }
    }
    return "";
  }

  // Halves may be other code than what the layer launches for both.
  void check_halves() {
    LayerEngine& layer = layers_.front();
    layer.launch_halves();
    for (std::int64_t rank = 0; rank < layer.shards(); ++rank) {
      layer.poison_results(rank);
    }
    completion_.forward(layer);
    std::string wrong = request_.check ? request_.check(layer) : "";
    if (wrong.empty() && request_.tensors != nullptr) {
      const auto run = [&] {
        memory_.synchronize();
        completion_.forward(layer);
        memory_.synchronize();
      };
      wrong = remembered_in(request_, {layer, run, [] {}}, drawn_secret());
    }
    if (!wrong.empty()) {
      throw CaseError(fmt::format("shrink and expand by themselves are wrong: {}", wrong));
    }
  }

  // What the sequences as they were timed left in all shards of a layer that no one knows.
  void check(Measurement& measured, std::int64_t rank) {
    if (!request_.check) {
      return;
    }
    LayerEngine& layer = layers_[std::random_device{}() % layers_.size()];
    measured.check_message = completion_.wrong_in(layer);
    if (measured.check_message.empty() && request_.tensors != nullptr) {
      measured.check_message = check_remembered(rank);
    }
    measured.check_passed = measured.check_message.empty();
  }

  // Of the shard that counts. The last is still loaded as it was timed, another is loaded once more
  // before anything has changed.
  std::string check_remembered(std::int64_t rank) {
    const std::uint64_t secret = drawn_secret();
    LayerEngine& layer = layers_[secret % layers_.size()];
    const auto record = [this, rank] {
      clock_.load(1, sequence(rank, true, passes_[static_cast<std::size_t>(rank)]));
    };
    if (rank + 1 != request_.problem.layer.tp) {
      record();
    }
    const auto run = [&] {
      completion_.run_whole(layer, rank, [this] { static_cast<void>(clock_.run_seconds(1)); });
    };
    return remembered_in(request_, {layer, run, record}, secret);
  }

  const LayerMeasureRequest& request_;
  Clock& clock_;
  const DeviceFacts& device_;
  MeasureSettings settings_;
  bool evicts_;
  Eviction eviction_;
  Memory& memory_;
  LayerCompletion completion_;
  std::deque<LayerEngine> layers_;    // whose addresses stay
  std::vector<std::int64_t> passes_;  // of each shard's sequence
  ClockReadings highest_mhz_;         // of samples of this layer
};

}  // namespace

LayerWork count_layer_work(const ShardProblem& shard) {
  const Problem& base = shard.base;
  const auto size = [&](Role role) { return size_bytes(base.dtype[role]); };
  const std::int64_t columns = base.max_rank;
  LayerWork work;
  work.base.rows = base.tokens;
  if (base.tokens > 0) {
    // Of a table rows are read, of which each id may name the same.
    const std::int64_t read = shard.looks_up ? 0 : base.in_features;
    work.base.weight_bytes =
        columns * (read * size(Role::kA) + (shard.adds_bias ? size(Role::kBias) : 0));
    work.base.written_bytes = base.tokens * columns * size_bytes(shard.lora.dtype[Role::kY]);
    work.base.bytes =
        work.base.weight_bytes + work.base.written_bytes + base.tokens * read * size(Role::kX);
    work.base.flops = 2 * base.tokens * columns * read;
  }
  work.layer = work.base;
  const auto add = [&](const Problem& part) {
    const Work adapters = count_work(part);
    work.layer.weight_bytes += adapters.weight_bytes;
    work.layer.bytes += adapters.weight_bytes;
    work.layer.flops += adapters.flops;
  };
  add(shard.lora);
  if (shard.expand) {
    add(*shard.expand);
  }
  return work;
}

std::int64_t layer_measurement_bytes(const LayerProblem& problem, CacheMode cache,
                                     std::int64_t cache_bytes) {
  return (layer_sets(problem, cache, cache_bytes) + 2) * allocated_bytes(problem);
}

LayerMeasurement measure_layer(const LayerMeasureRequest& request, Memory& memory, Clock& clock,
                               const DeviceFacts& device) {
  return LayerBench(request, memory, clock, device).run();
}

}  // namespace lora_bench
