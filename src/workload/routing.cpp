#include "workload/routing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "workload/fill_sizes.h"

namespace lora_bench {
namespace {

using Order = std::vector<std::int64_t>;  // of the experts, the likeliest first

// Uniform in [0, 1).
double unit_of(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

// The first runners to arrive, in the order of their arrival. Where arrivals are exponential with a
// rate, these are the largest of ln(rate) + Gumbel noise, at one logarithm for the few that come
// early enough to matter.
class Race {
 public:
  explicit Race(std::int64_t places)
      : times_(static_cast<std::size_t>(places)), runners_(static_cast<std::size_t>(places)) {}

  void start() { taken_ = 0; }

  // Whether who arrives at this time, or later, may still have a place.
  [[nodiscard]] bool is_open(double time) const {
    return taken_ < times_.size() || time < times_.back();
  }

  // Of those that arrive together the first that is told of is the first.
  void arrive(double time, std::int64_t runner) {
    if (!is_open(time)) {
      return;
    }
    std::size_t at = taken_ < times_.size() ? taken_++ : taken_ - 1;
    for (; at > 0 && time < times_[at - 1]; --at) {
      times_[at] = times_[at - 1];
      runners_[at] = runners_[at - 1];
    }
    times_[at] = time;
    runners_[at] = runner;
  }

  [[nodiscard]] std::int64_t taken() const { return static_cast<std::int64_t>(taken_); }
  [[nodiscard]] std::int64_t operator[](std::int64_t place) const {
    return runners_[static_cast<std::size_t>(place)];
  }

 private:
  std::vector<double> times_;
  std::vector<std::int64_t> runners_;
  std::size_t taken_ = 0;
};

// Draws the experts of one token after another.
class ExpertDraw {
 public:
  explicit ExpertDraw(const Case& spec)
      : law_(spec.routing),
        count_(spec.experts.count),
        top_k_(spec.experts.top_k),
        seed_(spec.seed),
        runs_(spec.seed, stream_of(Draw::kExpertChoice)),
        turns_(spec.seed, stream_of(Draw::kExpertChoice, 1)),
        race_(top_k_),
        others_(top_k_),
        groups_(spec.routing.groups_per_token),
        shared_(random_order(count_, seed_, stream_of(Draw::kExpertOrder))) {
    refuse_what_cannot_be();
    const std::int64_t slots = spec.adapters.slots;
    const auto own =
        static_cast<std::size_t>(std::llround(law_.per_adapter * static_cast<double>(slots)));
    const Order drawn = random_order(slots, seed_, stream_of(Draw::kAdapterWithOrder));
    for (std::size_t i = 0; i < std::min(own, drawn.size()); ++i) {
      own_[static_cast<std::int32_t>(drawn[i])] = {};
    }
    for (std::int64_t rank = 0; rank < count_; ++rank) {
      slowness_.push_back(law_.kind == Routing::kZipf
                              ? std::pow(static_cast<double>(rank + 1), law_.parameter)
                              : 1);
    }
  }

  // Writes top_k experts from `chosen` on.
  void draw(std::int64_t token, std::int32_t adapter, std::int32_t* chosen) {
    switch (law_.kind) {
      case Routing::kUniform:
      case Routing::kZipf:
        run(token, 0, count_, race_);
        return take_all(order_of(adapter), chosen);
      case Routing::kHot:
        return draw_hot(token, order_of(adapter), chosen);
      case Routing::kGrouped:
        return draw_grouped(token, chosen);
      case Routing::kBalanced:
        return take_turn(token * top_k_, chosen);
      case Routing::kIdentical:
        return take_turn(0, chosen);
      case Routing::kTrace: {
        const RoutedToken& said = said_of(token);
        std::copy(said.experts.begin(), said.experts.end(), chosen);
        return;
      }
    }
  }

  // What a trace says of the token.
  [[nodiscard]] const RoutedToken& said_of(std::int64_t token) const {
    return law_.trace[static_cast<std::size_t>(token) % law_.trace.size()];
  }

 private:
  void refuse_what_cannot_be() const {
    const auto fits = [&](const RoutedToken& token) {
      return static_cast<std::int64_t>(token.experts.size()) == top_k_ &&
             (token.weights.empty() || token.weights.size() == token.experts.size());
    };
    if (law_.kind == Routing::kTrace &&
        (law_.trace.empty() || !std::all_of(law_.trace.begin(), law_.trace.end(), fits))) {
      throw CaseError("trace '" + law_.trace_file + "' does not name " + std::to_string(top_k_) +
                      " experts a token");
    }
    const std::int64_t reached =
        law_.kind == Routing::kGrouped ? law_.groups_per_token * (count_ / law_.groups) : count_;
    if (reached < top_k_) {
      throw CaseError("experts: " + std::to_string(top_k_) + " of " + std::to_string(reached));
    }
  }

  const Order& order_of(std::int32_t adapter) {
    const auto own = own_.find(adapter);
    if (own == own_.end()) {
      return shared_;
    }
    if (own->second.empty()) {
      own->second =
          random_order(count_, seed_, stream_of(Draw::kExpertOrder, std::int64_t{1} + adapter));
    }
    return own->second;
  }

  // Lets the ranks from `first` to before `end` race.
  void run(std::int64_t token, std::int64_t first, std::int64_t end, Race& race) const {
    race.start();
    enter(token, first, end, race);
  }

  void enter(std::int64_t token, std::int64_t first, std::int64_t end, Race& race) const {
    const auto base = static_cast<std::uint64_t>(token * count_);
    for (std::int64_t rank = first; rank < end; ++rank) {
      const double unit = unit_of(runs_.bits(base + static_cast<std::uint64_t>(rank)));
      const double slowness = slowness_[static_cast<std::size_t>(rank)];
      // -ln(1 - unit) is at least `unit`.
      if (race.is_open(unit * slowness)) {
        race.arrive(-std::log1p(-unit) * slowness, rank);
      }
    }
  }

  void take_all(const Order& order, std::int32_t* chosen) const {
    for (std::int64_t j = 0; j < top_k_; ++j) {
      chosen[j] = static_cast<std::int32_t>(order[static_cast<std::size_t>(race_[j])]);
    }
  }

  // Choice by choice: of the hot ones with probability p, and of the others where these are used
  // up.
  void draw_hot(std::int64_t token, const Order& order, std::int32_t* chosen) {
    const std::int64_t hot_ones = std::min(law_.hot, count_);
    run(token, 0, hot_ones, race_);
    run(token, hot_ones, count_, others_);
    std::int64_t hot = 0;
    for (std::int64_t j = 0; j < top_k_; ++j) {
      const double unit = unit_of(turns_.bits(static_cast<std::uint64_t>(token * top_k_ + j)));
      const std::int64_t other = j - hot;
      const bool is_hot =
          hot < race_.taken() && (unit < law_.parameter || other == others_.taken());
      const std::int64_t rank = is_hot ? race_[hot] : others_[other];
      hot += is_hot ? 1 : 0;
      chosen[j] = static_cast<std::int32_t>(order[static_cast<std::size_t>(rank)]);
    }
  }

  void draw_grouped(std::int64_t token, std::int32_t* chosen) {
    const std::int64_t width = count_ / law_.groups;
    groups_.start();
    for (std::int64_t group = 0; group < law_.groups; ++group) {
      groups_.arrive(unit_of(turns_.bits(static_cast<std::uint64_t>(token * law_.groups + group))),
                     group);
    }
    race_.start();
    for (std::int64_t i = 0; i < groups_.taken(); ++i) {
      enter(token, groups_[i] * width, (groups_[i] + 1) * width, race_);
    }
    for (std::int64_t j = 0; j < top_k_; ++j) {
      chosen[j] = static_cast<std::int32_t>(race_[j]);
    }
  }

  void take_turn(std::int64_t first, std::int32_t* chosen) const {
    for (std::int64_t j = 0; j < top_k_; ++j) {
      chosen[j] =
          static_cast<std::int32_t>(shared_[static_cast<std::size_t>((first + j) % count_)]);
    }
  }

  const RoutingLaw& law_;
  std::int64_t count_, top_k_;
  std::uint64_t seed_;
  RandomStream runs_, turns_;
  Race race_, others_, groups_;
  Order shared_;
  std::map<std::int32_t, Order> own_;  // empty until it is asked for
  std::vector<double> slowness_;       // of the ranks of an order
};

// The weights of a token from standard normal logits of its experts: their softmax, or its share of
// a softmax over all experts, of which the others have the mean that such logits have.
class WeightDraw {
 public:
  explicit WeightDraw(const Case& spec)
      : experts_(spec.experts), bits_(spec.seed, stream_of(Draw::kRouterLogit)) {}

  void draw(std::int64_t token, float* weights) const {
    const std::int64_t top_k = experts_.top_k;
    double sum =
        experts_.renormalise ? 0 : static_cast<double>(experts_.count - top_k) * kMeanOfExp;
    for (std::int64_t j = 0; j < top_k; ++j) {
      const double odds = std::exp(normal(static_cast<std::uint64_t>(token * top_k + j)));
      weights[j] = static_cast<float>(odds);
      sum += static_cast<double>(weights[j]);
    }
    for (std::int64_t j = 0; j < top_k; ++j) {
      weights[j] = static_cast<float>(static_cast<double>(weights[j]) * experts_.scaling / sum);
    }
  }

 private:
  static constexpr double kMeanOfExp = 1.6487212707001282;  // of a standard normal number: sqrt(e)

  // By Box and Muller, of two numbers.
  [[nodiscard]] double normal(std::uint64_t index) const {
    const double radius = std::sqrt(-2 * std::log1p(-unit_of(bits_.bits(2 * index))));
    return radius * std::cos(2 * std::numbers::pi * unit_of(bits_.bits(2 * index + 1)));
  }

  const ExpertsSpec& experts_;
  RandomStream bits_;
};

}  // namespace

void draw_routing(const Case& spec, Batch& batch) {
  const auto top_k = static_cast<std::size_t>(spec.experts.top_k);
  const std::size_t rows = batch.adapter_of_token.size();
  std::int64_t tokens = 0;
  for (const Sequence& sequence : batch.sequences) {
    tokens += sequence.tokens;
  }
  batch.expert_of_choice.assign(rows * top_k, -1);
  batch.weight_of_choice.assign(rows * top_k, 0);
  ExpertDraw experts(spec);
  const WeightDraw weights(spec);
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::size_t at = static_cast<std::size_t>(token) * top_k;
    experts.draw(token, batch.adapter_of_token[static_cast<std::size_t>(token)],
                 batch.expert_of_choice.data() + at);
    float* const weights_of_token = batch.weight_of_choice.data() + at;
    const bool said =
        spec.routing.kind == Routing::kTrace && !experts.said_of(token).weights.empty();
    if (said) {
      const std::vector<float>& given = experts.said_of(token).weights;
      std::copy(given.begin(), given.end(), weights_of_token);
    } else {
      weights.draw(token, weights_of_token);
    }
  }
}

}  // namespace lora_bench
