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
       {row.time.min_us, row.time.q1_us, row.time.us, row.time.q3_us, row.time.max_us}) {
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
  const bool share = row.floor.stream_us && row.step.cache != "hot" && row.step.bytes > 0;
  const double of_weights = share ? *row.floor.stream_us *
                                        static_cast<double>(row.step.weight_bytes) /
                                        static_cast<double>(row.step.bytes)
                                  : 0;
  return std::max(row.floor.us.value_or(0), of_weights);
}

bool is_share(const std::optional<double>& value) {
  return !value || (*value >= 0 && *value <= 1 + kTolerance);
}

// Whether the one over the other is what is said, as far as all are told.
bool is_ratio(const std::optional<double>& ratio, const std::optional<double>& over,
              const std::optional<double>& under) {
  return !ratio || !over || !under || agree(*ratio * *under, *over);
}

// A rate is so many units over the time.
bool is_rate(const std::optional<double>& rate, std::int64_t units, double time_us, double scale) {
  return !rate || agree(*rate * time_us * scale, static_cast<double>(units));
}

std::string doubt_about_work(const Row& row) {
  const Row::Step& step = row.step;
  if (step.tokens < 0 || step.bytes < 0 || step.weight_bytes < 0 || step.flops < 0) {
    return "tokens, bytes, weight_bytes or flops is below 0";
  }
  if (step.flops > 0 && step.weight_bytes == 0) {
    return "weight_bytes is 0 beside flops, which need weights";
  }
  return step.weight_bytes > step.bytes ? "weight_bytes is more than bytes" : "";
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
  if (!are_levels(row.proof.levels)) {
    return "levels are not exact, bounded, relations and memory, or some of them in this order";
  }
  if (!is_share(row.proof.bound_share)) {
    return "bound_share is no share from 0 to 1";
  }
  if (!is_share(row.proof.rows_checked)) {
    return "rows_checked is no share from 0 to 1";
  }
  if (!is_share(row.conditions.stolen_share)) {
    return "stolen_share is no share from 0 to 1";
  }
  if (row.status != Status::kPassed) {
    return "";
  }
  if (row.proof.levels.empty()) {
    return "PASSED without a level that was proved";
  }
  if (!row.id.peer.empty() && row.proof.levels != "bounded") {
    return "a peer PASSED at other levels than bounded";
  }
  return row.proof.first_wrong.empty() && row.proof.hypothesis.empty()
             ? ""
             : "PASSED with wrong elements";
}

std::string doubt_about_time_alone(const Row& row) {
  const Row::Time& time = row.time;
  if (time.alone_us && !is_time(*time.alone_us)) {
    return "alone_us is no positive number";
  }
  if (time.alone_noise_us.value_or(0) < 0 || time.samples_dropped.value_or(0) < 0) {
    return "alone_noise_us or samples_dropped is below 0";
  }
  return is_ratio(row.floor.alone_ratio, time.alone_us, row.floor.us)
             ? ""
             : "alone_ratio is not alone_us over floor_us";
}

std::string doubt_about_figures_of_time(const Row& row) {
  const Row::Time& time = row.time;
  const Row::Rates& rates = row.rates;
  if (!time.us) {
    for (const auto& figure :
         {time.min_us, time.q1_us, time.q3_us, time.max_us, time.noise_us, row.floor.ratio,
          row.floor.stream_ratio, time.alone_us, row.floor.alone_ratio, rates.tokens_per_s,
          rates.bandwidth_GBps, rates.compute_TFLOPps}) {
      if (figure) {
        return "figures of a time without time_us";
      }
    }
    return "";
  }
  if (time.noise_us && time.min_us && time.max_us &&
      *time.noise_us > (*time.max_us - *time.min_us) + kTolerance * *time.max_us) {
    return "noise_us is more than the samples are apart";
  }
  if (!is_rate(rates.tokens_per_s, row.step.tokens, *time.us, 1e-6)) {
    return "tokens_per_s is not tokens over time_us";
  }
  if (!is_rate(rates.bandwidth_GBps, row.step.bytes, *time.us, 1e3)) {
    return "bandwidth_GBps is not bytes over time_us";
  }
  return is_rate(rates.compute_TFLOPps, row.step.flops, *time.us, 1e6)
             ? ""
             : "compute_TFLOPps is not flops over time_us";
}

// Every run takes two, and says where it has too few to know the median (see sampling.cpp).
std::string doubt_about_samples(const Row& row) {
  constexpr std::int64_t kLeast = 2, kForMedian = 6;
  if (row.status != Status::kPassed || !row.time.us) {
    return "";
  }
  const std::int64_t samples = row.time.samples.value_or(std::ssize(row.time.samples_us));
  if (samples < kLeast) {
    return "PASSED with a time of fewer than two samples";
  }
  return samples < kForMedian && row.warning.empty()
             ? "PASSED with too few samples to know the median, and no warning"
             : "";
}

// Of one set; a whole layer rotates its base too, and of a shard its share.
bool is_rotated(const Row& row, std::int64_t sets) {
  const std::int64_t bytes = row.time.rotated_bytes.value_or(0);
  const std::int64_t touched = row.step.cache == "hot"    ? 0
                               : row.step.cache == "cold" ? row.step.bytes
                                                          : row.step.weight_bytes;
  return bytes % sets == 0 && (row.step.op == "layer" || bytes / sets == touched);
}

// A sample goes round all sets as often as it has to.
std::string doubt_about_rotation(const Row& row) {
  const std::int64_t sets = row.time.rotation_sets.value_or(1);
  const std::int64_t launches = row.time.launches.value_or(sets);
  if (!row.id.peer.empty() && row.status == Status::kPassed && row.time.us &&
      !(row.time.rotation_sets && row.time.launches && row.time.rotated_bytes)) {
    return "a peer PASSED with a time and without launches, rotation_sets or rotated_bytes";
  }
  if (sets < 1 || launches < 1 || launches % sets != 0) {
    return "launches are not once or more round all rotation_sets";
  }
  if (row.step.cache == "hot" && sets > 1) {
    return "hot weights, of which several sets were rotated";
  }
  // What is cold lies in no cache: of one set, which every launch has, a run says how large it is.
  const bool cold = row.step.cache == "weights-cold" || row.step.cache == "cold";
  if (cold && row.step.weight_bytes > 0 && sets == 1 && row.time.rotated_bytes == 0) {
    return "cold weights, of which no bytes were rotated";
  }
  return row.time.rotation_sets && row.time.rotated_bytes && !is_rotated(row, sets)
             ? "rotated_bytes are not what rotation_sets hold"
             : "";
}

bool is_below_zero(const std::optional<double>& value) { return value && !(*value >= 0); }

// Sums and quotients of the columns of a layer. A tax below its noise is no number.
std::string doubt_about_layer(const Row& row) {
  const Row::Tax& tax = row.tax;
  const Row::Time& time = row.time;
  if (is_below_zero(tax.noise_us) || is_below_zero(tax.floor_us) || is_below_zero(tax.us)) {
    return "a tax, its noise or its floor is below 0";
  }
  if (tax.base_us && !is_time(*tax.base_us)) {
    return "base_us is no positive number";
  }
  if (tax.us && time.us && tax.base_us && !agree(*tax.base_us + *tax.us, *time.us)) {
    return "time_us is not base_us and tax_us";
  }
  if (tax.base_us && time.us && tax.noise_us) {
    if (*tax.noise_us < time.noise_us.value_or(0) * (1 - kTolerance)) {
      return "tax_noise_us is less than noise_us";
    }
    const double apart = std::fabs(*time.us - *tax.base_us) - *tax.noise_us;
    if (std::fabs(apart) > kTolerance * *time.us && (apart > 0) != tax.us.has_value()) {
      return tax.us ? "tax_us is no more than tax_noise_us"
                    : "tax_us is missing, though more than tax_noise_us";
    }
  }
  if (tax.us && tax.base_us && tax.pct && !agree(*tax.pct * *tax.base_us, 100 * *tax.us)) {
    return "tax_pct is not tax_us of base_us";
  }
  return is_ratio(tax.ratio, tax.us, tax.floor_us) ? ""
                                                   : "tax_ratio is not tax_us over tax_floor_us";
}

std::string doubt_about_parts(const Row& row) {
  const Row::Time& time = row.time;
  const Row::Tax& tax = row.tax;
  for (const auto& part :
       {time.noise_us, time.plan_us, time.zero_us, time.shrink_us, time.expand_us}) {
    if (is_below_zero(part)) {
      return "noise_us, plan_us or a phase is below 0";
    }
  }
  // The parts of a layer are those of its tax.
  const std::optional<double>& of_parts = tax.base_us ? tax.us : time.us;
  const bool whole = of_parts && time.shrink_us && time.expand_us && time.gap_us;
  return whole &&
                 !agree(time.zero_us.value_or(0) + *time.shrink_us + *time.expand_us + *time.gap_us,
                        *of_parts)
             ? fmt::format("{} is not its phases and gap_us", tax.base_us ? "tax_us" : "time_us")
             : "";
}

// The floor of a peer's row is that of ours, which only `report --peers` knows.
std::string doubt_about_floor(const Row& row) {
  const Row::Tax& tax = row.tax;
  for (const auto& [value, key] :
       {std::pair{row.floor.us, "floor_us"}, std::pair{row.floor.stream_us, "stream_us"}}) {
    if (value && !is_time(*value)) {
      return fmt::format("{} is no positive number", key);
    }
  }
  if (row.status != Status::kPassed || !row.time.us) {
    return "";
  }
  if (!row.floor.us && !row.floor.stream_us) {
    const bool nothing_to_do = row.step.bytes == 0 && row.step.flops == 0;
    return row.id.peer.empty() && !nothing_to_do ? "PASSED with a time and without floor_us" : "";
  }
  const double least_us = least_time(row) * (1 - kTolerance);
  if (*row.time.us + row.time.noise_us.value_or(0) < least_us) {
    return "PASSED in a time below what the floor allows";
  }
  if (!tax.base_us) {
    return "";
  }
  if (!tax.floor_us) {
    return row.id.peer.empty() ? "PASSED with a base_us and without tax_floor_us" : "";
  }
  // What the adapters need at least is not the base's.
  return *tax.base_us + tax.noise_us.value_or(0) < least_us - *tax.floor_us
             ? "PASSED with a base_us below what the floor allows"
             : "";
}

}  // namespace

std::string disturbance(const Row& row) {
  constexpr double kBusyLoad = 1.5;  // per core, one of them its own
  if (!row.conditions.throttle.empty()) {
    return fmt::format("throttled: {}", row.conditions.throttle);
  }
  if (row.conditions.stolen_share) {
    return *row.conditions.stolen_share > kMostStolenShare
               ? fmt::format("stolen: others had {:.0f} % of the CPU time",
                             100 * *row.conditions.stolen_share)
               : "";
  }
  // Where the kernel does not tell, the load of the last minute is all there is.
  return row.conditions.load.value_or(0) > kBusyLoad
             ? fmt::format("busy machine: load {:.1f} per core", *row.conditions.load)
             : "";
}

bool timed_alike(const Row& left, const Row& right) {
  const auto alike = [](const std::string& a, const std::string& b) {
    return a == b || a.empty() || b.empty();
  };
  return alike(left.step.cache, right.step.cache) && alike(left.step.mode, right.step.mode);
}

std::string other_case(const Row& left, const Row& right) {
  std::string found;
  const auto check = [&](const char* what, auto field) {
    if (left.step.*field != right.step.*field && found.empty()) {
      found = fmt::format("another case of the same name: {} '{}' and '{}'", what, left.step.*field,
                          right.step.*field);
    }
  };
  check("op", &Row::Step::op);
  check("dtype", &Row::Step::dtype);
  check("tokens", &Row::Step::tokens);
  check("in_features", &Row::Step::in_features);
  check("out_features", &Row::Step::out_features);
  check("rank", &Row::Step::rank);
  check("ranks", &Row::Step::ranks);
  check("seed", &Row::Step::seed);
  if (!left.step.content.empty() && !right.step.content.empty()) {  // earlier versions tell none
    check("content", &Row::Step::content);
  }
  return found;
}

std::string other_work(const Row& left, const Row& right) {
  const std::string other = other_case(left, right);
  return other.empty() && std::tie(left.step.bytes, left.step.weight_bytes, left.step.flops) !=
                              std::tie(right.step.bytes, right.step.weight_bytes, right.step.flops)
             ? "another case of the same name: other bytes, weight_bytes or flops"
             : other;
}

std::string doubt_about(const Row& row) {
  const Row::Time& time = row.time;
  const Row::Floor& floor = row.floor;
  if (time.us && !is_time(*time.us)) {
    return "time_us is no positive number";
  }
  if (!std::all_of(time.samples_us.begin(), time.samples_us.end(), is_time)) {
    return "samples_us holds what is no positive number";
  }
  if (!time.samples_us.empty()) {
    if (!time.us || !agree(*time.us, median_of(time.samples_us))) {
      return "time_us is not the median of samples_us";
    }
    if (time.samples && *time.samples != static_cast<std::int64_t>(time.samples_us.size())) {
      return "samples is not the number of samples_us";
    }
  }
  if (!in_order(row)) {
    return "the least time, the quartiles, the median and the longest time are not in order";
  }
  if (!is_ratio(floor.ratio, time.us, floor.us)) {
    return "floor_ratio is not time_us over floor_us";
  }
  if (!is_ratio(floor.stream_ratio, time.us, floor.stream_us)) {
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
  std::pair<std::string, std::string> names(row.id.scenario, row.id.case_id);
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
