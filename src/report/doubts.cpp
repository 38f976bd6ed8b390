#include "report/doubts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace lora_bench {
namespace {

// Far above the rounding of units and decimals, far below anything worth a forgery.
constexpr double kTolerance = 1e-6;

bool is_time(double value) { return std::isfinite(value) && value > 0; }

bool agree(double left, double right) {
  return std::fabs(left - right) <= kTolerance * std::max(std::fabs(left), std::fabs(right));
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

bool in_order(const Row& row) {
  double earlier = 0;
  for (const std::optional<double>& time :
       {row.time_min_us, row.time_q1_us, row.time_us, row.time_q3_us, row.time_max_us}) {
    if (time && *time < earlier * (1 - kTolerance)) {
      return false;
    }
    earlier = time.value_or(earlier);
  }
  return true;
}

// What no machine can undercut, as far as a row tells: its floor and, where weights are cold, their
// share of one pass over all bytes.
double least_time(const Row& row) {
  const bool share = row.stream_us && row.cache != "hot" && row.bytes > 0;
  const double of_weights = share ? *row.stream_us * static_cast<double>(row.weight_bytes) /
                                        static_cast<double>(row.bytes)
                                  : 0;
  return std::max(row.floor_us.value_or(0), of_weights);
}

bool is_share(const std::optional<double>& value) {
  return !value || (*value >= 0 && *value <= 1 + kTolerance);
}

// A rate is so many units over the time.
bool is_rate(const std::optional<double>& rate, std::int64_t units, double time_us, double scale) {
  return !rate || agree(*rate * time_us * scale, static_cast<double>(units));
}

std::string doubt_about_work(const Row& row) {
  if (row.tokens < 0 || row.bytes < 0 || row.weight_bytes < 0 || row.flops < 0) {
    return "tokens, bytes, weight_bytes or flops is below 0";
  }
  if (row.flops > 0 && row.weight_bytes == 0) {
    return "weight_bytes is 0 beside flops, which need weights";
  }
  return row.weight_bytes > row.bytes ? "weight_bytes is more than bytes" : "";
}

// Those that were proved, each once and in their order (verify/verify.h), "+" between them.
bool are_levels(const std::string& text) {
  constexpr std::array<std::string_view, 4> kLevels{"exact", "bounded", "relations", "memory"};
  auto next = kLevels.begin();
  std::istringstream levels(text);
  for (std::string level; std::getline(levels, level, '+');) {
    next = std::find(next, kLevels.end(), level);
    if (next == kLevels.end()) {
      return false;
    }
    ++next;
  }
  return text.empty() || text.back() != '+';
}

std::string doubt_about_proof(const Row& row) {
  if (!are_levels(row.levels)) {
    return "levels are not exact, bounded, relations and memory, or some of them in this order";
  }
  if (!is_share(row.bound_share)) {
    return "bound_share is no share from 0 to 1";
  }
  if (!is_share(row.rows_checked)) {
    return "rows_checked is no share from 0 to 1";
  }
  if (!is_share(row.stolen_share)) {
    return "stolen_share is no share from 0 to 1";
  }
  if (row.status != Status::kPassed) {
    return "";
  }
  if (row.levels.empty()) {
    return "PASSED without a level that was proved";
  }
  if (!row.peer.empty() && row.levels != "bounded") {
    return "a peer PASSED at other levels than bounded";
  }
  return row.first_wrong.empty() && row.hypothesis.empty() ? "" : "PASSED with wrong elements";
}

std::string doubt_about_time_alone(const Row& row) {
  if (row.alone_us && !is_time(*row.alone_us)) {
    return "alone_us is no positive number";
  }
  if (row.alone_noise_us.value_or(0) < 0 || row.samples_dropped.value_or(0) < 0) {
    return "alone_noise_us or samples_dropped is below 0";
  }
  return row.alone_us && row.floor_us && row.alone_ratio &&
                 !agree(*row.alone_ratio * *row.floor_us, *row.alone_us)
             ? "alone_ratio is not alone_us over floor_us"
             : "";
}

std::string doubt_about_figures_of_time(const Row& row) {
  if (!row.time_us) {
    for (const auto& figure :
         {row.time_min_us, row.time_q1_us, row.time_q3_us, row.time_max_us, row.noise_us,
          row.floor_ratio, row.stream_ratio, row.alone_us, row.alone_ratio, row.tokens_per_s,
          row.bandwidth_GBps, row.compute_TFLOPps}) {
      if (figure) {
        return "figures of a time without time_us";
      }
    }
    return "";
  }
  if (row.noise_us && row.time_min_us && row.time_max_us &&
      *row.noise_us > (*row.time_max_us - *row.time_min_us) + kTolerance * *row.time_max_us) {
    return "noise_us is more than the samples are apart";
  }
  if (!is_rate(row.tokens_per_s, row.tokens, *row.time_us, 1e-6)) {
    return "tokens_per_s is not tokens over time_us";
  }
  if (!is_rate(row.bandwidth_GBps, row.bytes, *row.time_us, 1e3)) {
    return "bandwidth_GBps is not bytes over time_us";
  }
  return is_rate(row.compute_TFLOPps, row.flops, *row.time_us, 1e6)
             ? ""
             : "compute_TFLOPps is not flops over time_us";
}

// Every run takes two, and says where it has too few to know the median (see sampling.cpp).
std::string doubt_about_samples(const Row& row) {
  constexpr std::int64_t kLeast = 2, kForMedian = 6;
  if (row.status != Status::kPassed || !row.time_us) {
    return "";
  }
  const std::int64_t samples = row.samples.value_or(std::ssize(row.samples_us));
  if (samples < kLeast) {
    return "PASSED with a time of fewer than two samples";
  }
  return samples < kForMedian && row.warning.empty()
             ? "PASSED with too few samples to know the median, and no warning"
             : "";
}

// Of one set; a whole layer rotates its base too, and of a shard its share.
bool is_rotated(const Row& row, std::int64_t sets) {
  const std::int64_t bytes = row.rotated_bytes.value_or(0);
  const std::int64_t touched = row.cache == "hot"    ? 0
                               : row.cache == "cold" ? row.bytes
                                                     : row.weight_bytes;
  return bytes % sets == 0 && (row.op == "layer" || bytes / sets == touched);
}

// A sample goes round all sets as often as it has to.
std::string doubt_about_rotation(const Row& row) {
  const std::int64_t sets = row.rotation_sets.value_or(1);
  const std::int64_t launches = row.launches.value_or(sets);
  if (!row.peer.empty() && row.status == Status::kPassed && row.time_us &&
      !(row.rotation_sets && row.launches && row.rotated_bytes)) {
    return "a peer PASSED with a time and without launches, rotation_sets or rotated_bytes";
  }
  if (sets < 1 || launches < 1 || launches % sets != 0) {
    return "launches are not once or more round all rotation_sets";
  }
  if (row.cache == "hot" && sets > 1) {
    return "hot weights, of which several sets were rotated";
  }
  // What is cold lies in no cache: of one set, which every launch has, a run says how large it is.
  const bool cold = row.cache == "weights-cold" || row.cache == "cold";
  if (cold && row.weight_bytes > 0 && sets == 1 && row.rotated_bytes == 0) {
    return "cold weights, of which no bytes were rotated";
  }
  return row.rotation_sets && row.rotated_bytes && !is_rotated(row, sets)
             ? "rotated_bytes are not what rotation_sets hold"
             : "";
}

bool is_below_zero(const std::optional<double>& value) { return value && !(*value >= 0); }

// Sums and quotients of the columns of a layer. A tax below its noise is no number.
std::string doubt_about_layer(const Row& row) {
  if (is_below_zero(row.tax_noise_us) || is_below_zero(row.tax_floor_us) ||
      is_below_zero(row.tax_us)) {
    return "a tax, its noise or its floor is below 0";
  }
  if (row.base_us && !is_time(*row.base_us)) {
    return "base_us is no positive number";
  }
  if (row.tax_us && row.time_us && row.base_us &&
      !agree(*row.base_us + *row.tax_us, *row.time_us)) {
    return "time_us is not base_us and tax_us";
  }
  if (row.base_us && row.time_us && row.tax_noise_us) {
    if (*row.tax_noise_us < row.noise_us.value_or(0) * (1 - kTolerance)) {
      return "tax_noise_us is less than noise_us";
    }
    const double apart = std::fabs(*row.time_us - *row.base_us) - *row.tax_noise_us;
    if (std::fabs(apart) > kTolerance * *row.time_us && (apart > 0) != row.tax_us.has_value()) {
      return row.tax_us ? "tax_us is no more than tax_noise_us"
                        : "tax_us is missing, though more than tax_noise_us";
    }
  }
  if (row.tax_us && row.base_us && row.tax_pct &&
      !agree(*row.tax_pct * *row.base_us, 100 * *row.tax_us)) {
    return "tax_pct is not tax_us of base_us";
  }
  return row.tax_us && row.tax_floor_us && row.tax_ratio &&
                 !agree(*row.tax_ratio * *row.tax_floor_us, *row.tax_us)
             ? "tax_ratio is not tax_us over tax_floor_us"
             : "";
}

std::string doubt_about_parts(const Row& row) {
  for (const auto& part : {row.noise_us, row.plan_us, row.zero_us, row.shrink_us, row.expand_us}) {
    if (is_below_zero(part)) {
      return "noise_us, plan_us or a phase is below 0";
    }
  }
  // The parts of a layer are those of its tax.
  const std::optional<double>& of_parts = row.base_us ? row.tax_us : row.time_us;
  const bool whole = of_parts && row.shrink_us && row.expand_us && row.gap_us;
  return whole && !agree(row.zero_us.value_or(0) + *row.shrink_us + *row.expand_us + *row.gap_us,
                         *of_parts)
             ? fmt::format("{} is not its phases and gap_us", row.base_us ? "tax_us" : "time_us")
             : "";
}

// The floor of a peer's row is that of ours, which only `report --peers` knows.
std::string doubt_about_floor(const Row& row) {
  for (const auto& [value, key] :
       {std::pair{row.floor_us, "floor_us"}, std::pair{row.stream_us, "stream_us"}}) {
    if (value && !is_time(*value)) {
      return fmt::format("{} is no positive number", key);
    }
  }
  if (row.status != Status::kPassed || !row.time_us) {
    return "";
  }
  if (!row.floor_us && !row.stream_us) {
    const bool nothing_to_do = row.bytes == 0 && row.flops == 0;
    return row.peer.empty() && !nothing_to_do ? "PASSED with a time and without floor_us" : "";
  }
  const double least_us = least_time(row) * (1 - kTolerance);
  if (*row.time_us + row.noise_us.value_or(0) < least_us) {
    return "PASSED in a time below what the floor allows";
  }
  if (!row.base_us) {
    return "";
  }
  if (!row.tax_floor_us) {
    return row.peer.empty() ? "PASSED with a base_us and without tax_floor_us" : "";
  }
  // What the adapters need at least is not the base's.
  return *row.base_us + row.tax_noise_us.value_or(0) < least_us - *row.tax_floor_us
             ? "PASSED with a base_us below what the floor allows"
             : "";
}

}  // namespace

std::string disturbance(const Row& row) {
  constexpr double kBusyLoad = 1.5;  // per core, one of them its own
  if (!row.throttle.empty()) {
    return fmt::format("throttled: {}", row.throttle);
  }
  if (row.stolen_share) {
    return *row.stolen_share > kMostStolenShare
               ? fmt::format("stolen: others had {:.0f} % of the CPU time", 100 * *row.stolen_share)
               : "";
  }
  // Where the kernel does not tell, the load of the last minute is all there is.
  return row.load.value_or(0) > kBusyLoad
             ? fmt::format("busy machine: load {:.1f} per core", *row.load)
             : "";
}

bool timed_alike(const Row& left, const Row& right) {
  const auto alike = [](const std::string& a, const std::string& b) {
    return a == b || a.empty() || b.empty();
  };
  return alike(left.cache, right.cache) && alike(left.mode, right.mode);
}

std::string other_case(const Row& left, const Row& right) {
  std::string found;
  const auto check = [&](const char* what, const auto& a, const auto& b) {
    if (a != b && found.empty()) {
      found = fmt::format("another case of the same name: {} '{}' and '{}'", what, a, b);
    }
  };
  check("op", left.op, right.op);
  check("dtype", left.dtype, right.dtype);
  check("tokens", left.tokens, right.tokens);
  check("in_features", left.in_features, right.in_features);
  check("out_features", left.out_features, right.out_features);
  check("rank", left.rank, right.rank);
  check("ranks", left.ranks, right.ranks);
  check("seed", left.seed, right.seed);
  if (!left.content.empty() && !right.content.empty()) {  // rows of earlier versions tell none
    check("content", left.content, right.content);
  }
  return found;
}

std::string other_work(const Row& left, const Row& right) {
  const std::string other = other_case(left, right);
  return other.empty() && std::tie(left.bytes, left.weight_bytes, left.flops) !=
                              std::tie(right.bytes, right.weight_bytes, right.flops)
             ? "another case of the same name: other bytes, weight_bytes or flops"
             : other;
}

std::string doubt_about(const Row& row) {
  if (row.time_us && !is_time(*row.time_us)) {
    return "time_us is no positive number";
  }
  if (!std::all_of(row.samples_us.begin(), row.samples_us.end(), is_time)) {
    return "samples_us holds what is no positive number";
  }
  if (!row.samples_us.empty()) {
    if (!row.time_us || !agree(*row.time_us, median_of(row.samples_us))) {
      return "time_us is not the median of samples_us";
    }
    if (row.samples && *row.samples != static_cast<std::int64_t>(row.samples_us.size())) {
      return "samples is not the number of samples_us";
    }
  }
  if (!in_order(row)) {
    return "the least time, the quartiles, the median and the longest time are not in order";
  }
  if (row.time_us && row.floor_us && row.floor_ratio &&
      !agree(*row.floor_ratio * *row.floor_us, *row.time_us)) {
    return "floor_ratio is not time_us over floor_us";
  }
  if (row.time_us && row.stream_us && row.stream_ratio &&
      !agree(*row.stream_ratio * *row.stream_us, *row.time_us)) {
    return "stream_ratio is not time_us over stream_us";
  }
  return "";
}

std::string doubt_about_stored(const Row& row) {
  for (const auto check :
       {doubt_about, doubt_about_work, doubt_about_proof, doubt_about_figures_of_time,
        doubt_about_time_alone, doubt_about_samples, doubt_about_rotation, doubt_about_layer,
        doubt_about_parts, doubt_about_floor}) {
    if (std::string doubt = check(row); !doubt.empty()) {
      return doubt;
    }
  }
  return "";
}

std::string CasesByName::other(const Row& row, const std::string& place) {
  std::pair<std::string, std::string> names(row.scenario, row.case_id);
  const auto found = first_.find(names);
  if (found == first_.end()) {
    first_.emplace(std::move(names), Known{row, place});
    return "";
  }
  const auto& [first, where] = found->second;
  const std::string other = other_work(first, row);
  return other.empty() ? "" : fmt::format("{} (the first: {})", other, where);
}

}  // namespace lora_bench
