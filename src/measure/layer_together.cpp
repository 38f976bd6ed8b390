#include "measure/layer_time.h"

#include <algorithm>
#include <deque>
#include <random>
#include <utility>

#include "measure/rotation.h"
#include "measure/sampling.h"
#include "measure/small_changes.h"

namespace lora_bench {
namespace {

// Each launch of a layer is captured on every GPU, collectives included.
constexpr std::int64_t kMostTogether = 512;
constexpr double kTogetherSeconds = 1e-3;
constexpr int kExchangeRuns = 15;

enum Slot : int { kBase = 0, kLayer = 1, kExchanges = 2, kExchangesOfH = 3 };

class TogetherBench {
 public:
  TogetherBench(const LayerMeasureRequest& request, const LayerHome& home, Clock& clock,
                const DeviceFacts& device)
      : request_(request),
        home_(home),
        clock_(clock),
        sets_(layer_sets(request.problem, request.settings.cache, device.cache_bytes)),
        evicts_(request.settings.cache != CacheMode::kHot && sets_ == kMostLayerSets) {
    for (std::int64_t set = 0; set < sets_; ++set) {
      layers_.emplace_back(request.problem, home.places);
      layers_.back().load_from(request.loaded);
    }
    for (const ShardPlace& place : home.places) {
      evictions_.emplace_back(place.memory, evicts_ ? device.cache_bytes : 0);
    }
    home.synchronize();
  }

  LayerMeasurement run() {
    const std::int64_t passes = choose_passes();
    load(kBase, passes, [this](LayerEngine& layer) { forward(layer, false); });
    load_layers(passes);
    LayerMeasurement measured;
    measured.together = true;
    Measurement& layer = measured.layer;
    layer.rotation_sets = sets_;
    layer.rotated_bytes = request_.settings.cache == CacheMode::kHot
                              ? 0
                              : sets_ * weight_bytes_of_layer(request_.problem);
    take_samples({.settings = request_.settings,
                  .launches = passes * sets_,
                  .own_load = own_load(home_.space()),
                  .prepare = [this](int) { prepare(); },
                  .stop = request_.stop,
                  .against_baseline = true},
                 clock_, layer);
    measured.base_s = summarize(layer.baseline_s).median;
    measured.tax_s = layer.summary.median - measured.base_s;
    measured.tax_noise_s = noise_of_tax(layer, measured.tax_s);
    measured.comm_h_s = exchange_seconds(
        kExchangesOfH, [this](LayerEngine& one) { one.exchange_h(*home_.communicator, Stream{}); });
    measured.comm_s = *measured.comm_h_s + exchange_seconds(kExchanges, [this](LayerEngine& one) {
      one.exchange_y(*home_.communicator, Stream{});
    });
    check(layer, passes);
    return measured;
  }

 private:
  void forward(LayerEngine& layer, bool with_lora) {
    layer.forward(*home_.communicator, Stream{}, with_lora);
  }

  template <typename Does>
  void load(int slot, std::int64_t passes, const Does& does) {
    std::vector<Launch> launches;
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      for (LayerEngine& layer : layers_) {
        launches.emplace_back([&layer, does](Stream) { does(layer); });
      }
    }
    clock_.load(slot, std::move(launches));
  }

  void load_layers(std::int64_t passes) {
    load(kLayer, passes, [this](LayerEngine& layer) { forward(layer, true); });
  }

  // So many that a sample is long against the clock; one where the caches are emptied before it.
  std::int64_t choose_passes() {
    if (evicts_) {
      return 1;
    }
    load_layers(1);
    static_cast<void>(clock_.run_seconds(kLayer));
    const double seconds = std::max(clock_.run_seconds(kLayer), 1e-9);
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(kTogetherSeconds / seconds) + 1, 1,
                                    std::max<std::int64_t>(1, kMostTogether / sets_));
  }

  // No sample finds the h of the one before.
  void prepare() {
    for (LayerEngine& layer : layers_) {
      for (std::int64_t rank = 0; rank < layer.shards(); ++rank) {
        layer.poison_h(rank);
      }
    }
    for (Eviction& eviction : evictions_) {
      eviction.run();
    }
  }

  // Of one exchange, launched by itself one after another; 0 where there is none.
  template <typename Does>
  double exchange_seconds(int slot, const Does& does) {
    const ShardProblem& shard = layers_.front().shard(0);
    if ((slot == kExchangesOfH ? shard.h : shard.y) == Exchange::kNone ||
        request_.problem.lora.tokens == 0) {
      return 0;
    }
    const std::int64_t passes = std::clamp<std::int64_t>(64 / sets_, 1, 64);
    load(slot, passes, does);
    std::vector<double> samples;
    for (int run = 0; run < kExchangeRuns; ++run) {
      samples.push_back(clock_.run_seconds(slot) / static_cast<double>(passes * sets_));
    }
    return summarize(samples).median;
  }

  // What the sequence as it was timed leaves in a layer that no one knows.
  void check(Measurement& measured, std::int64_t passes) {
    if (!request_.check) {
      return;
    }
    for (LayerEngine& layer : layers_) {
      for (std::int64_t rank = 0; rank < layer.shards(); ++rank) {
        layer.poison_results(rank);
      }
    }
    static_cast<void>(clock_.run_seconds(kLayer));
    home_.synchronize();
    LayerEngine& layer = layers_[std::random_device{}() % layers_.size()];
    measured.check_message = request_.check(layer);
    if (measured.check_message.empty()) {
      measured.check_message = damage_to(layer, request_.loaded);
    }
    if (measured.check_message.empty() && request_.tensors != nullptr) {
      measured.check_message = check_remembered(passes);
    }
    measured.check_passed = measured.check_message.empty();
  }

  std::string check_remembered(std::int64_t passes) {
    const std::uint64_t secret = drawn_secret();
    const auto run = [this] {
      home_.synchronize();
      static_cast<void>(clock_.run_seconds(kLayer));
      home_.synchronize();
    };
    return remembered_in(
        request_, {layers_[secret % layers_.size()], run, [this, passes] { load_layers(passes); }},
        secret);
  }

  const LayerMeasureRequest& request_;
  const LayerHome& home_;
  Clock& clock_;
  std::int64_t sets_;
  bool evicts_;
  std::deque<LayerEngine> layers_;  // whose addresses stay
  std::deque<Eviction> evictions_;
};

}  // namespace

LayerMeasurement measure_layer_together(const LayerMeasureRequest& request, const LayerHome& home,
                                        Clock& clock, const DeviceFacts& device) {
  return TogetherBench(request, home, clock, device).run();
}

}  // namespace lora_bench
