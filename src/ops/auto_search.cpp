#include "ops/auto_tuning.h"

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <vector>

#include "kernels/divide_up.h"

namespace lora_bench {
namespace {

std::int64_t up_to_power(std::int64_t value) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(value)));
}

// By more than the noise of both, and by more than what one machine differs from the next.
bool gains(const Timed& best, const Timed& own) {
  constexpr double kLeastGain = 0.01;
  return best.time_us + std::max(best.noise_us + own.noise_us, kLeastGain * own.time_us) <
         own.time_us;
}

class Search {
 public:
  Search(const AutoDevice& device, const Problem& problem, const TimeOf& time_of,
         const std::function<bool()>& ended)
      : device_(device), problem_(problem), time_of_(time_of), ended_(ended) {
    problem_.tuning = {};
    own_ = auto_family(device_, problem_);
  }

  TuningSearch run() {
    const std::optional<Timed> own = timed({});
    if (!own) {
      return {std::nullopt, tried_};
    }
    best_ = {{}, own->time_us};
    over(own_, own->time_us);
    for (const AutoFamily family :
         {AutoFamily::kClustered, AutoFamily::kResident, AutoFamily::kPanel}) {
      if (family != own_) {
        over(family, own->time_us);
      }
    }
    TuningSearch result{std::nullopt, tried_};
    // The least of many times is too good by its luck: both once more.
    if (!best_.tuning.empty()) {
      const std::optional<Timed> again = time_of_({}, true);
      const std::optional<Timed> best = time_of_(best_.tuning, true);
      if (again && best && gains(*best, *again) && gains(*best, *own)) {
        result.found = {shape_class(problem_), best_.tuning, best->time_us, again->time_us};
      }
    }
    return result;
  }

 private:
  struct Candidate {
    Tuning tuning;
    double time_us = 0;
  };

  // Nothing for what cannot be launched, is launched already or was not proved.
  std::optional<Timed> timed(const Tuning& tuning) {
    Problem told = problem_;
    told.tuning = tuning;
    if (ended_() || tuning_rules().fault(tuning) || !why_not_tuned(device_, told).empty()) {
      return std::nullopt;
    }
    std::string launch(name(auto_family(device_, told)));
    const std::vector<std::string> lines = explain_auto(device_, told);
    for (std::size_t i = 1; i < lines.size(); ++i) {  // the first says why
      launch += lines[i];
    }
    if (!launches_.insert(launch).second) {
      return std::nullopt;
    }
    ++tried_;
    return time_of_(tuning, false);
  }

  void over(AutoFamily family, double own_us) {
    constexpr double kHopeless = 1.5;  // times what auto takes, for the start of a family
    Candidate here{tuning_of({.family = family}), own_us};
    if (family != own_) {
      const std::optional<Timed> start = timed(here.tuning);
      if (!start || start->time_us > kHopeless * own_us) {
        return;
      }
      here.time_us = start->time_us;
      take(here);
    }
    for (bool better = true; better && !ended_();) {
      better = false;
      for (const KnobValue& value : values_to_try(family)) {
        const Tuning next = with_value(here.tuning, value);
        const std::optional<Timed> time = timed(next);
        if (time && time->time_us < here.time_us) {
          here = {next, time->time_us};
          take(here);
          better = true;
        }
      }
    }
  }

  void take(const Candidate& candidate) {
    if (candidate.time_us < best_.time_us) {
      best_ = candidate;
    }
  }

  const AutoDevice& device_;
  Problem problem_;
  const TimeOf& time_of_;
  const std::function<bool()>& ended_;
  std::set<std::string> launches_;
  AutoFamily own_ = AutoFamily::kPanel;  // that auto chooses
  Candidate best_;
  std::int64_t tried_ = 0;
};

}  // namespace

ShapeClass shape_class(const Problem& problem) {
  const std::int64_t active = std::max<std::int64_t>(problem.groups(), 1);
  ShapeClass shape;
  shape.op = name(problem.op);
  shape.dtype = name(problem.dtype[Role::kX]);
  shape.intermediate = name(problem.dtype[Role::kH]);
  if (problem.has_scaled_weights()) {
    shape.weights = name(problem.dtype[Role::kA]);
  }
  shape.in_features = problem.in_features;
  shape.widths = problem.widths;
  shape.rank = up_to_power(problem.max_rank);
  shape.tokens = up_to_power(problem.tokens);
  shape.rows = up_to_power(kernels::divide_up(problem.tokens, active));
  return shape;
}

TuningSearch search_tuning(const AutoDevice& device, const Problem& problem, const TimeOf& time_of,
                           const std::function<bool()>& ended) {
  return Search(device, problem, time_of, ended).run();
}

}  // namespace lora_bench
