#include "run/row_of.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/units.h"
#include "measure/metadata_time.h"
#include "measure/quantise_time.h"
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

Row::Time time_of(const Measurement& measured) {
  Row::Time time;
  time.us = measured.summary.median * kMicroseconds;
  time.min_us = measured.summary.min * kMicroseconds;
  time.q1_us = measured.summary.q1 * kMicroseconds;
  time.q3_us = measured.summary.q3 * kMicroseconds;
  time.max_us = measured.summary.max * kMicroseconds;
  time.noise_us = finite_us(measured.noise_s);
  if (measured.alone_s && measured.alone_noise_s) {
    time.alone_us = *measured.alone_s * kMicroseconds;
    time.alone_noise_us = finite_us(measured.alone_noise_s);
  }
  if (measured.phases) {
    const Phases& phases = *measured.phases;
    time.zero_us = finite_us(phases.zero_s);
    time.shrink_us = finite_us(phases.shrink_s);
    time.expand_us = finite_us(phases.expand_s);
    time.gap_us =
        finite_us(measured.summary.median - phases.zero_s - phases.shrink_s - phases.expand_s);
  }
  for (const double seconds : measured.samples_s) {
    time.samples_us.push_back(seconds * kMicroseconds);
  }
  time.samples = static_cast<std::int64_t>(measured.samples_s.size());
  if (std::isfinite(measured.clock_mhz)) {
    time.samples_dropped = measured.samples_dropped;
  }
  time.launches = measured.launches;
  time.rotation_sets = measured.rotation_sets;
  time.rotated_bytes = measured.rotated_bytes;
  return time;
}

// A tax that is no more than its noise, which is no less than one below 0, is no number.
Row::Tax tax_of(const LayerMeasurement& measured) {
  Row::Tax tax;
  tax.base_us = measured.base_s * kMicroseconds;
  tax.noise_us = measured.tax_noise_s * kMicroseconds;
  const double us = measured.layer.summary.median * kMicroseconds - *tax.base_us;
  if (!(us <= *tax.noise_us)) {
    tax.us = us;
    tax.pct = 100 * us / *tax.base_us;
  }
  return tax;
}

// Of a layer with the parts of its tax.
Row::Time time_of(const LayerMeasurement& measured) {
  Row::Time time = time_of(measured.layer);
  if (const Row::Tax tax = tax_of(measured); tax.us && measured.shrink_s && measured.expand_s) {
    time.shrink_us = *measured.shrink_s * kMicroseconds;
    time.expand_us = *measured.expand_s * kMicroseconds;
    time.gap_us = *tax.us - *time.shrink_us - *time.expand_us;
  }
  return time;
}

Row::Conditions conditions_of(const Measurement& measured) {
  const Conditions &before = measured.before, &after = measured.after;
  const bool clock_read = std::isfinite(measured.clock_mhz);
  return {.clock_mhz = clock_read ? measured.clock_mhz : finite(after.clock_mhz),
          .temperature_c = finite(after.temperature_c),
          .power_w = finite(after.power_w),
          .load = finite(before.load),
          .stolen_share = measured.stolen_share,
          .yardstick_us = finite_us((before.yardstick_s + after.yardstick_s) / 2),
          .throttle = after.throttle,
          .governor = after.governor};
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
  std::vector<NewInputs> inputs{measurement.new_inputs.value_or(NewInputs{})};
  if (measurement.phases) {
    const Phases& phases = *measurement.phases;
    looks.insert(looks.end(), phases.replayed.begin(), phases.replayed.end());
    single.insert(single.end(), phases.single.begin(), phases.single.end());
    inputs.insert(inputs.end(), phases.new_inputs.begin(), phases.new_inputs.end());
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
  const auto depends = std::find_if(inputs.begin(), inputs.end(), depends_on_new_inputs);
  if (depends != inputs.end()) {
    findings.push_back(
        {Status::kMistrusted,
         fmt::format("after timing: a launch takes {} longer than the {} that were timed where the "
                     "numbers of x (or h) are new: it does less while they stay as they are",
                     format_seconds(depends->new_s - depends->known_s),
                     format_seconds(depends->launch_s))});
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

Least least_of(const CaseStep& step, const Outcome& outcome, CacheMode cache) {
  if (step.metadata) {
    return {.whole =
                floor_of(count_metadata_work(*step.metadata), step.op, cache, *outcome.ceilings)};
  }
  if (step.quantise) {
    return {.whole = floor_of(count_quantise_work(step.quantise->problem), step.op, cache,
                              *outcome.ceilings)};
  }
  if (!step.layer) {
    return least_of_op(step.op, cache, *outcome.ceilings);
  }
  const bool one = outcome.layer_time && !outcome.layer_time->together;
  return least_of_layer(outcome.layer ? *outcome.layer : *step.layer,
                        one ? outcome.layer_time->shard : 0, cache, *outcome.ceilings);
}

// Who has nothing to do may launch nothing: no least time stands against that.
Row::Floor floor_beside(const Row& row, const Floor& least) {
  Row::Floor floor;
  const bool nothing_to_do = row.step.bytes == 0 && row.step.flops == 0;
  if (!nothing_to_do || !(row.time.us && *row.time.us < least.seconds * kMicroseconds)) {
    floor.us = least.seconds * kMicroseconds;
    floor.stream_us = least.stream_seconds * kMicroseconds;
    floor.bound_by = least.bound_by;
  }
  return floor;
}

// A time below what the machine can do, or of a clock that stands still or runs backwards, must not
// end in a record.
std::vector<Finding> found_too_quick(const Row& row, const Least& least) {
  std::vector<Finding> findings;
  if (!row.time.us) {
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
  if (row.floor.us) {
    check("", row.time.us, row.time.noise_us, least.whole);
  }
  // Of too quick a base the tax is too large.
  check("base_us of ", row.tax.base_us, row.tax.noise_us, least.base);
  // What sets h to zero was timed with shrink.
  check("zero_us and shrink_us of ",
        row.time.shrink_us ? std::optional(*row.time.shrink_us + row.time.zero_us.value_or(0))
                           : std::nullopt,
        row.time.noise_us, least.shrink);
  check("expand_us of ", row.time.expand_us, row.time.noise_us, least.expand);
  return findings;
}

constexpr const char* kMeasuredAnew =
    "ceilings measured anew for this row: floors of earlier rows are of the old ones";

std::vector<std::string> warnings_of(const Row& row, const Outcome& outcome) {
  std::vector<std::string> warnings;
  if (const Measurement* measured = measurement_of(outcome)) {
    warnings = measured->warnings;
    if (row.conditions.stolen_share > kMostStolenShare) {
      warnings.push_back(disturbance(row));
    }
    if (row.interrupted) {
      warnings.emplace_back("interrupted");
    }
  }
  if (outcome.layer_time && !row.tax.us) {
    warnings.push_back(fmt::format("tax < noise ({} us)", format_figure(*row.tax.noise_us)));
  }
  if (outcome.ceilings_anew) {
    warnings.emplace_back(kMeasuredAnew);
  }
  if (!outcome.counted.why_not.empty()) {
    warnings.push_back("not counted: " + outcome.counted.why_not);
  }
  return warnings;
}

// In the order in which they were made.
std::vector<Finding> findings_of(const Row& row, const Outcome& outcome,
                                 const std::optional<Least>& least) {
  std::vector<Finding> findings;
  const auto add = [&](const std::vector<Finding>& more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  if (outcome.verdict) {
    add({{outcome.verdict->status, outcome.verdict->message}});
  }
  if (const Measurement* measured = measurement_of(outcome)) {
    add(found_after_timing(*measured));
  }
  if (least) {
    add(found_too_quick(row, *least));
  }
  for (const auto& end : {outcome.counted.end, outcome.end}) {
    if (end) {
      add({*end});
    }
  }
  return findings;
}

bool of_the_host(const Row& row) { return row.step.mode == "host"; }

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
  row.id.plugin = selected.plugin;
  row.repro = request.repro;
  if (selected.backend && selected.backend->space() == Space::kHost) {
    row.step.mode = "host";  // graphs and streams are the GPU's
  }
  if (outcome.verdict) {
    row.proof = proof_of(*outcome.verdict);
  }
  row.proof.numerics = outcome.numerics;
  if (outcome.layer) {
    row.layer.overlap = name(outcome.layer->overlap);
  }
  if (const auto& measured = outcome.layer_time) {
    row.time = time_of(*measured);
    row.tax = tax_of(*measured);
    row.layer.shard = measured->together ? std::nullopt : std::optional(measured->shard);
    row.layer.comm_us = finite_us(measured->comm_s);
    row.layer.comm_h_us = finite_us(measured->comm_h_s);
  } else if (outcome.op_time) {
    row.time = time_of(*outcome.op_time);
  }
  if (const Measurement* measured = measurement_of(outcome)) {
    row.time.first_call_ms =
        outcome.first_call_s ? std::optional(*outcome.first_call_s * 1e3) : std::nullopt;
    row.time.plan_us = finite_us(outcome.plan_s);
    row.time.touch_us = finite_us(outcome.touch_s);
    row.conditions = conditions_of(*measured);
    row.interrupted = measured->interrupted;
  }
  std::optional<Least> least;
  if (outcome.ceilings) {
    least = least_of(step, outcome, request.spec.measure.cache);
    row.floor = floor_beside(row, least->whole);
    row.tax.floor_us = finite_us(least->tax_s);
    derive_metrics(row);
    row.limits = held_to(row, request.thresholds);
  }
  const LaunchCounters& counters = outcome.counted.counters;
  row.counted = {counters.dram_read_bytes, counters.dram_written_bytes, counters.sm_cycles,
                 counters.l2_hit_rate};
  row.warning = fmt::format("{}", fmt::join(warnings_of(row, outcome), "; "));
  const Finding stands = prevailing(findings_of(row, outcome, least));
  row.status = stands.status;
  row.message = stands.message;
  return row;
}

Row::Proof proof_of(const Verdict& verdict) {
  Row::Proof proof;
  std::vector<std::string_view> levels;
  for (const Level level : verdict.passed) {
    levels.push_back(name(level));
  }
  proof.levels = fmt::format("{}", fmt::join(levels, "+"));
  proof.bound_share = verdict.bound_share;
  proof.rows_checked = verdict.rows_checked;
  if (verdict.failure) {
    proof.hypothesis = verdict.failure->hypothesis;
    for (const Mismatch& mismatch : verdict.failure->first) {
      proof.first_wrong += (proof.first_wrong.empty() ? "" : "; ") + describe(mismatch);
    }
  }
  return proof;
}

Row::Limits held_to(const Row& row, const Thresholds& thresholds) {
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
  const double time_us = row.time.us.value_or(0);
  const double noise_us = row.time.noise_us.value_or(0);
  if (thresholds.max_time_us && row.time.us) {
    hold("time_us", time_us, *thresholds.max_time_us, noise_us);
  }
  if (thresholds.max_floor_ratio && row.floor.ratio) {
    hold("floor_ratio", *row.floor.ratio, *thresholds.max_floor_ratio,
         noise_us / row.floor.us.value_or(time_us));
  }
  if (thresholds.max_stream_ratio && row.floor.stream_ratio) {
    hold("stream_ratio", *row.floor.stream_ratio, *thresholds.max_stream_ratio,
         noise_us / row.floor.stream_us.value_or(time_us));
  }
  if (thresholds.min_tokens_per_s && row.rates.tokens_per_s) {
    const double noise = *row.rates.tokens_per_s * noise_us / time_us;
    hold("time per token in s", 1 / *row.rates.tokens_per_s, 1 / *thresholds.min_tokens_per_s,
         noise / (*row.rates.tokens_per_s * *row.rates.tokens_per_s));
  }
  if (thresholds.max_tax_pct && row.tax.base_us) {  // a tax below its noise is judged as well
    hold("tax_pct", 100 * (time_us - *row.tax.base_us) / *row.tax.base_us, *thresholds.max_tax_pct,
         100 * row.tax.noise_us.value_or(0) / *row.tax.base_us);
  }
  return {thresholds.max_regression, fmt::format("{}", fmt::join(missed, "; ")),
          fmt::format("{}", fmt::join(undecided, "; "))};
}

std::int64_t rows_of_old_ceilings(const std::vector<Row>& rows) {
  if (rows.empty() || rows.back().warning.find(kMeasuredAnew) == std::string::npos) {
    return 0;
  }
  return std::count_if(rows.begin(), rows.end() - 1, [&](const Row& row) {
    return row.floor.us && of_the_host(row) == of_the_host(rows.back());
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
