#include "run/row_of.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/units.h"
#include "report/doubts.h"
#include "run/describe.h"

namespace lora_bench {
namespace {

constexpr double kMicroseconds = 1e6;

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

std::optional<double> finite_us(std::optional<double> seconds) {
  return seconds ? finite(*seconds * kMicroseconds) : std::nullopt;
}

const Measurement* measurement_of(const Outcome& outcome) {
  return outcome.layer_time ? &outcome.layer_time->layer
                            : (outcome.op_time ? &*outcome.op_time : nullptr);
}

void add_times(Row& row, const Measurement& measurement) {
  row.time_us = measurement.summary.median * kMicroseconds;
  row.time_min_us = measurement.summary.min * kMicroseconds;
  row.time_q1_us = measurement.summary.q1 * kMicroseconds;
  row.time_q3_us = measurement.summary.q3 * kMicroseconds;
  row.time_max_us = measurement.summary.max * kMicroseconds;
  row.noise_us = finite(measurement.noise_s * kMicroseconds);
  if (measurement.alone_s && measurement.alone_noise_s) {
    row.alone_us = *measurement.alone_s * kMicroseconds;
    row.alone_noise_us = finite(*measurement.alone_noise_s * kMicroseconds);
  }
  if (measurement.phases) {
    const Phases& phases = *measurement.phases;
    row.zero_us = finite(phases.zero_s * kMicroseconds);
    row.shrink_us = finite(phases.shrink_s * kMicroseconds);
    row.expand_us = finite(phases.expand_s * kMicroseconds);
    row.gap_us =
        finite((measurement.summary.median - phases.zero_s - phases.shrink_s - phases.expand_s) *
               kMicroseconds);
  }
  for (const double seconds : measurement.samples_s) {
    row.samples_us.push_back(seconds * kMicroseconds);
  }
  row.samples = static_cast<std::int64_t>(measurement.samples_s.size());
  row.launches = measurement.launches;
  row.rotation_sets = measurement.rotation_sets;
  row.rotated_bytes = measurement.rotated_bytes;
}

void add_conditions(Row& row, const Measurement& measurement) {
  const bool clock_read = std::isfinite(measurement.clock_mhz);
  row.clock_mhz = clock_read ? measurement.clock_mhz : finite(measurement.after.clock_mhz);
  if (clock_read) {
    row.samples_dropped = measurement.samples_dropped;
  }
  row.temperature_c = finite(measurement.after.temperature_c);
  row.power_w = finite(measurement.after.power_w);
  row.load = finite(measurement.before.load);
  row.stolen_share = measurement.stolen_share;
  row.yardstick_us =
      finite((measurement.before.yardstick_s + measurement.after.yardstick_s) / 2 * kMicroseconds);
  row.throttle = measurement.after.throttle;
  row.governor = measurement.after.governor;
  row.interrupted = measurement.interrupted;
}

// A tax that is no more than its noise, which is no less than one below 0, is no number.
void add_tax(Row& row, const LayerMeasurement& measurement) {
  if (!measurement.together) {
    row.shard = measurement.shard;
  }
  row.comm_us = finite_us(measurement.comm_s);
  row.comm_h_us = finite_us(measurement.comm_h_s);
  row.base_us = measurement.base_s * kMicroseconds;
  row.tax_noise_us = measurement.tax_noise_s * kMicroseconds;
  const double tax_us = *row.time_us - *row.base_us;
  if (tax_us <= *row.tax_noise_us) {
    return;
  }
  if (measurement.shrink_s && measurement.expand_s) {
    row.shrink_us = *measurement.shrink_s * kMicroseconds;
    row.expand_us = *measurement.expand_s * kMicroseconds;
    row.gap_us = tax_us - *row.shrink_us - *row.expand_us;
  }
  row.tax_us = tax_us;
  row.tax_pct = 100 * tax_us / *row.base_us;
}

bool vague(const Look& look) {
  return look.compared > 0 &&
         proves_too_little(static_cast<double>(look.unproved) / static_cast<double>(look.compared));
}

// A declaration may be loose enough for what was timed to be something else than what was proved.
std::vector<Finding> found_after_timing(const Measurement& measurement) {
  if (!measurement.check_passed) {
    return {{Status::kFailed,
             fmt::format("wrong after timing, right before it: {}", measurement.check_message)}};
  }
  std::vector<Look> looks{measurement.replayed};
  std::vector<SingleLaunches> single{measurement.single};
  if (measurement.phases) {
    const Phases& phases = *measurement.phases;
    looks.insert(looks.end(), phases.replayed.begin(), phases.replayed.end());
    single.insert(single.end(), phases.single.begin(), phases.single.end());
  }
  std::vector<Finding> findings;
  const auto unseen = std::find_if(single.begin(), single.end(), too_much_unseen);
  if (unseen != single.end()) {
    findings.push_back(
        {Status::kMistrusted,
         fmt::format("after timing: {:.1f} % of the launches could have been left out unseen ({} "
                     "of {} looks at one launch would have told); declare numerics no looser than "
                     "the kernel is",
                     100 * unseen_share(*unseen), unseen->telling, unseen->looks)});
  }
  const auto found = std::find_if(looks.begin(), looks.end(), vague);
  if (found != looks.end()) {
    findings.push_back(
        {Status::kMistrusted,
         fmt::format("after timing: launches that are left out would pass in {} of {} elements; "
                     "declare numerics no looser than the kernel is",
                     found->unproved, found->compared)});
  }
  return findings;
}

// What a case and its timed parts take at least; nothing of a part that has nothing to do.
struct Least {
  Floor whole;
  std::optional<Floor> base = {}, shrink = {}, expand = {};
  std::optional<double> tax_s = {};  // of a layer
};

Least least_of_op(const Problem& problem, CacheMode cache, const Ceilings& ceilings) {
  const auto of_half = [&](Op op) {
    const Problem half = half_of(problem, op);
    const Work work = count_work(half);
    const bool nothing_to_do = work.bytes == 0 && work.flops == 0;
    return nothing_to_do ? std::nullopt : std::optional(floor_of(work, half, cache, ceilings));
  };
  return {.whole = floor_of(count_work(problem), problem, cache, ceilings),
          .shrink = of_half(Op::kShrink),
          .expand = of_half(Op::kExpand)};
}

// Of the shard that was timed. A measured curve may fall where it should rise.
Least least_of_layer(const LayerProblem& layer, std::int64_t shard, CacheMode cache,
                     const Ceilings& ceilings) {
  const ShardProblem part = shard_problem(layer, shard);
  const LayerWork work = count_layer_work(part);
  const Floor whole = floor_of(work.layer, part.lora, cache, ceilings);
  const Floor base = floor_of(work.base, part.lora, cache, ceilings);
  return {.whole = whole,
          .base = work.base.bytes > 0 ? std::optional(base) : std::nullopt,
          .tax_s = std::max(0.0, whole.seconds - base.seconds)};
}

void add_floor(Row& row, const Least& least) {
  const double floor_us = least.whole.seconds * kMicroseconds;
  // Who has nothing to do may launch nothing: no least time stands against that.
  const bool nothing_to_do = row.bytes == 0 && row.flops == 0;
  if (!nothing_to_do || !(row.time_us && *row.time_us < floor_us)) {
    row.floor_us = floor_us;
    row.stream_us = least.whole.stream_seconds * kMicroseconds;
    row.bound_by = least.whole.bound_by;
  }
  derive_metrics(row);
  if (least.tax_s) {
    row.tax_floor_us = *least.tax_s * kMicroseconds;
    if (row.tax_us && *row.tax_floor_us > 0) {
      row.tax_ratio = *row.tax_us / *row.tax_floor_us;
    }
  }
}

// A time below what the machine can do, or of a clock that stands still or runs backwards, must not
// end in a record.
std::vector<Finding> found_too_quick(const Row& row, const Least& least) {
  std::vector<Finding> findings;
  if (!row.time_us) {
    return findings;
  }
  const auto check = [&](const char* what, std::optional<double> us, std::optional<double> noise_us,
                         const std::optional<Floor>& floor) {
    if (us && floor && *us + noise_us.value_or(0) < floor->seconds * kMicroseconds) {
      findings.push_back(
          {Status::kInvalid,
           fmt::format("{}{:.3f} us is below what this machine can do ({:.3f} us): the measurement "
                       "or the ceilings are wrong; see `lora-bench device --refresh`",
                       what, *us, floor->seconds * kMicroseconds)});
    }
  };
  if (const std::string doubt = doubt_about(row); !doubt.empty()) {
    findings.push_back({Status::kInvalid, "the clock cannot be believed: " + doubt});
  }
  if (row.floor_us) {
    check("", row.time_us, row.noise_us, least.whole);
  }
  check("base_us of ", row.base_us, row.tax_noise_us, least.base);  // its tax would be too large
  // What sets h to zero was timed with shrink.
  check("zero_us and shrink_us of ",
        row.shrink_us ? std::optional(*row.shrink_us + row.zero_us.value_or(0)) : std::nullopt,
        row.noise_us, least.shrink);
  check("expand_us of ", row.expand_us, row.noise_us, least.expand);
  return findings;
}

constexpr const char* kMeasuredAnew =
    "ceilings measured anew for this row: floors of earlier rows are of the old ones";

std::vector<std::string> warnings_of(const Row& row, const Outcome& outcome) {
  std::vector<std::string> warnings;
  if (const Measurement* measured = measurement_of(outcome)) {
    warnings = measured->warnings;
    if (row.stolen_share > kMostStolenShare) {
      warnings.push_back(disturbance(row));
    }
    if (row.interrupted) {
      warnings.emplace_back("interrupted");
    }
  }
  if (outcome.layer_time && !row.tax_us) {
    warnings.push_back(fmt::format("tax < noise ({} us)", format_figure(*row.tax_noise_us)));
  }
  if (outcome.ceilings_anew) {
    warnings.emplace_back(kMeasuredAnew);
  }
  if (!outcome.counted.why_not.empty()) {
    warnings.push_back("not counted: " + outcome.counted.why_not);
  }
  return warnings;
}

void add_counters(Row& row, const LaunchCounters& counters) {
  row.dram_read_bytes = counters.dram_read_bytes;
  row.dram_written_bytes = counters.dram_written_bytes;
  row.l2_hit_rate = counters.l2_hit_rate;
  row.sm_cycles = counters.sm_cycles;
}

void append(std::vector<Finding>& findings, std::vector<Finding> more) {
  std::move(more.begin(), more.end(), std::back_inserter(findings));
}

// Fills in what the ceilings say of the times, and returns what speaks against these.
std::vector<Finding> add_ceilings(Row& row, const CaseRequest& request, const CaseStep& step,
                                  const Outcome& outcome) {
  const CacheMode cache = request.spec.measure.cache;
  const Least least = step.layer ? least_of_layer(outcome.layer ? *outcome.layer : *step.layer,
                                                  row.shard.value_or(0), cache, *outcome.ceilings)
                                 : least_of_op(step.op, cache, *outcome.ceilings);
  add_floor(row, least);
  const Limits limits = held_to(row, request.thresholds);
  row.max_regression = limits.max_regression;
  row.threshold_missed = limits.missed;
  row.threshold_undecided = limits.undecided;
  return found_too_quick(row, least);
}

bool of_the_host(const Row& row) { return row.mode == "host"; }

}  // namespace

Finding prevailing(const std::vector<Finding>& findings) {
  Finding stands = findings.empty() ? Finding{} : findings.front();
  for (const Finding& next : findings) {
    const bool doubt = next.status == Status::kMistrusted || next.status == Status::kInvalid;
    if (!doubt || stands.status == Status::kPassed) {
      stands = next;
    }
  }
  return stands;
}

Row row_of(const CaseRequest& request, const CaseStep& step, const Outcome& outcome) {
  const Selected& selected = request.backend;
  Row row = describe_case(request.spec, step, selected.name);
  row.plugin = selected.plugin;
  row.repro = request.repro;
  if (selected.backend && selected.backend->space() == Space::kHost) {
    row.mode = "host";  // graphs and streams are the GPU's
  }
  row.numerics = outcome.numerics;
  if (outcome.layer) {
    row.overlap = name(outcome.layer->overlap);
  }
  std::vector<Finding> findings;
  if (outcome.verdict) {
    row = proved(std::move(row), *outcome.verdict);
    findings.push_back({row.status, row.message});
  }
  if (const Measurement* measured = measurement_of(outcome)) {
    add_times(row, *measured);
    add_conditions(row, *measured);
    append(findings, found_after_timing(*measured));
    row.plan_us = finite_us(outcome.plan_s);
    row.touch_us = finite_us(outcome.touch_s);
  }
  if (outcome.layer_time) {
    add_tax(row, *outcome.layer_time);
  }
  if (outcome.ceilings) {
    append(findings, add_ceilings(row, request, step, outcome));
  }
  add_counters(row, outcome.counted.counters);
  row.warning = fmt::format("{}", fmt::join(warnings_of(row, outcome), "; "));
  for (const auto& end : {outcome.counted.end, outcome.end}) {
    if (end) {
      findings.push_back(*end);
    }
  }
  const Finding stands = prevailing(findings);
  row.status = stands.status;
  row.message = stands.message;
  return row;
}

Row proved(Row row, const Verdict& verdict) {
  row.status = verdict.status;
  row.message = verdict.message;
  std::vector<std::string_view> levels;
  for (const Level level : verdict.passed) {
    levels.push_back(name(level));
  }
  row.levels = fmt::format("{}", fmt::join(levels, "+"));
  row.bound_share = verdict.bound_share;
  row.rows_checked = verdict.rows_checked;
  if (verdict.failure) {
    row.hypothesis = verdict.failure->hypothesis;
    for (const Mismatch& mismatch : verdict.failure->first) {
      row.first_wrong += (row.first_wrong.empty() ? "" : "; ") + describe(mismatch);
    }
  }
  return row;
}

Limits held_to(const Row& row, const Thresholds& thresholds) {
  std::vector<std::string> missed, undecided;
  // Judged with its noise. Of a row that others disturbed half the value decides: so much it might
  // be on a quiet machine.
  const auto hold = [&](const char* what, double value, double limit, double noise) {
    if (value <= limit) {
      return;
    }
    std::string sentence = fmt::format("{} is {:.4g}, allowed {:.4g}", what, value, limit);
    const std::string disturbed = disturbance(row);
    if (value * (disturbed.empty() ? 1 : 0.5) - noise > limit) {
      missed.push_back(std::move(sentence));
    } else {
      undecided.push_back(fmt::format("{}, noise {:.2g}{}{}", sentence, noise,
                                      disturbed.empty() ? "" : "; ", disturbed));
    }
  };
  const double time_us = row.time_us.value_or(0);
  const double noise_us = row.noise_us.value_or(0);
  if (thresholds.max_time_us && row.time_us) {
    hold("time_us", time_us, *thresholds.max_time_us, noise_us);
  }
  if (thresholds.max_floor_ratio && row.floor_ratio) {
    hold("floor_ratio", *row.floor_ratio, *thresholds.max_floor_ratio,
         noise_us / row.floor_us.value_or(time_us));
  }
  if (thresholds.max_stream_ratio && row.stream_ratio) {
    hold("stream_ratio", *row.stream_ratio, *thresholds.max_stream_ratio,
         noise_us / row.stream_us.value_or(time_us));
  }
  if (thresholds.min_tokens_per_s && row.tokens_per_s) {
    const double noise = *row.tokens_per_s * noise_us / time_us;
    hold("time per token in s", 1 / *row.tokens_per_s, 1 / *thresholds.min_tokens_per_s,
         noise / (*row.tokens_per_s * *row.tokens_per_s));
  }
  if (thresholds.max_tax_pct && row.base_us) {  // a tax below its noise is judged as well
    hold("tax_pct", 100 * (time_us - *row.base_us) / *row.base_us, *thresholds.max_tax_pct,
         100 * row.tax_noise_us.value_or(0) / *row.base_us);
  }
  return {thresholds.max_regression, fmt::format("{}", fmt::join(missed, "; ")),
          fmt::format("{}", fmt::join(undecided, "; "))};
}

std::int64_t rows_of_old_ceilings(const std::vector<Row>& rows) {
  if (rows.empty() || rows.back().warning.find(kMeasuredAnew) == std::string::npos) {
    return 0;
  }
  return std::count_if(rows.begin(), rows.end() - 1, [&](const Row& row) {
    return row.floor_us && of_the_host(row) == of_the_host(rows.back());
  });
}

std::string note_on_ceilings_anew(std::int64_t rows, const std::string& device) {
  return fmt::format(
      "the ceilings of {} were measured anew; {} beside the old ones: run again to "
      "compare floors",
      device,
      rows == 1 ? "1 row before this stands" : fmt::format("{} rows before this stand", rows));
}

}  // namespace lora_bench
