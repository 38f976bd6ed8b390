#include "run/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "layers/layer_problem.h"
#include "report/columns.h"
#include "report/doubts.h"
#include "run/layer_row.h"

namespace lora_bench {
namespace {

constexpr double kMicroseconds = 1e6;

std::string skew_text(const Case& spec) {
  const auto one = [](const SkewLaw& law) {
    switch (law.kind) {
      case Skew::kZipf:
      case Skew::kHot:
        return fmt::format("{}:{}", name(law.kind), law.parameter);
      case Skew::kTrace:
        return fmt::format("trace:{}", law.trace_file);
      default:
        return std::string(name(law.kind));
    }
  };
  const std::string decode = one(spec.skew);
  const std::string prefill = one(spec.prefill_skew);
  if (spec.batch.prefill.empty() || decode == prefill) {
    return decode;
  }
  return spec.batch.decode == 0 ? prefill : fmt::format("{}+{}", decode, prefill);
}

// Ranks of the slots in use, each once: "16" or "8,16,64".
std::string ranks_text(const Problem& problem) {
  std::vector<std::int64_t> ranks = problem.rank;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return fmt::format("{}", fmt::join(ranks, ","));
}

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

bool plain_word(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-+=./:,@%").find(c) != std::string_view::npos;
  });
}

// What a value must not exceed, judged with its noise. Of a row that others disturbed half the
// value decides: so much it might be on a quiet machine.
void judge_limit(Row& row, const char* what, double value, double limit, double noise) {
  if (value <= limit) {
    return;
  }
  const std::string sentence = fmt::format("{} is {:.4g}, allowed {:.4g}", what, value, limit);
  const std::string disturbed = disturbance(row);
  if (value * (disturbed.empty() ? 1 : 0.5) - noise > limit) {
    row.threshold_missed += (row.threshold_missed.empty() ? "" : "; ") + sentence;
  } else {
    row.threshold_undecided += (row.threshold_undecided.empty() ? "" : "; ") +
                               fmt::format("{}, noise {:.2g}{}{}", sentence, noise,
                                           disturbed.empty() ? "" : "; ", disturbed);
  }
}

bool vague(const Look& look) {
  return look.compared > 0 &&
         proves_too_little(static_cast<double>(look.unproved) / static_cast<double>(look.compared));
}

// A declaration may be loose enough for what was timed to be something else than what was proved.
void judge_after_timing(Row& row, const Measurement& measurement) {
  std::vector<Look> looks{measurement.replayed};
  if (measurement.phases) {
    const std::vector<Look>& of_phases = measurement.phases->replayed;
    looks.insert(looks.end(), of_phases.begin(), of_phases.end());
  }
  if (!measurement.check_passed) {
    judge(row, Status::kFailed,
          fmt::format("wrong after timing, right before it: {}", measurement.check_message));
    return;
  }
  std::vector<SingleLaunches> single{measurement.single};
  if (measurement.phases) {
    single.insert(single.end(), measurement.phases->single.begin(),
                  measurement.phases->single.end());
  }
  const auto unseen = std::find_if(single.begin(), single.end(), too_much_unseen);
  if (unseen != single.end()) {
    judge(
        row, Status::kMistrusted,
        fmt::format("after timing: {:.1f} % of the launches could have been left out unseen ({} of "
                    "{} looks at one launch would have told); declare numerics no looser than the "
                    "kernel is",
                    100 * unseen_share(*unseen), unseen->telling, unseen->looks));
  }
  const auto found = std::find_if(looks.begin(), looks.end(), vague);
  if (found != looks.end()) {
    judge(row, Status::kMistrusted,
          fmt::format("after timing: launches that are left out would pass in {} of {} elements; "
                      "declare numerics no looser than the kernel is",
                      found->unproved, found->compared));
  }
}

void judge_phase(Row& row, const char* columns, const std::optional<double>& us,
                 const Problem& phase, const MeasureSettings& settings, const Ceilings& ceilings) {
  const Work work = count_work(phase);
  const bool nothing_to_do = work.bytes == 0 && work.flops == 0;
  if (!us || nothing_to_do || row.status != Status::kPassed) {
    return;
  }
  judge_part(row, fmt::format("{} of ", columns), *us, row.noise_us.value_or(0),
             floor_of(work, phase, settings.cache, ceilings));
}

// What a case says of itself: columns and their values. Of ranks by shares who has the largest is
// drawn: no rank is said.
std::vector<std::pair<std::string_view, Cell>> said_by(const Case& spec,
                                                       const std::string& backend) {
  const auto word = [](std::string_view text) { return Cell{std::string(text)}; };
  const bool layer = has_base(spec.op);
  const auto of_layer = [layer](Cell cell) {
    if (!layer) {
      cell = std::monostate{};
    }
    return cell;
  };
  std::vector<std::pair<std::string_view, Cell>> said{
      {"scenario", spec.scenario},
      {"case", spec.id},
      {"backend", backend},
      {"point", spec.point},
      {"tags", spec.tags},
      {"op", word(name(spec.op))},
      {"dtype", word(name(spec.dtype))},
      {"intermediate", word(name(spec.intermediate))},
      {"scale_at", word(name(spec.scale_at))},
      {"model", spec.layer.model},
      {"layer", spec.layer.name},
      {"out_features", fmt::format("{}", fmt::join(spec.layer.widths, "+"))},
      {"skew", skew_text(spec)},
      {"order", word(name(spec.order))},
      {"slots", spec.adapters.slots},
      {"no_adapter", spec.no_adapter},
      {"add_inputs", spec.add_inputs},
      {"bias", spec.adapters.bias},
      {"seed", static_cast<std::int64_t>(spec.seed)},
      {"cache", word(name(spec.measure.cache))},
      {"mode", word(name(spec.measure.mode))},
      {"layer_kind", of_layer(word(name(spec.setup.kind)))},
      {"layer_count", of_layer(spec.layer.count > 0 ? Cell{spec.layer.count} : Cell{})},
      {"tp", of_layer(spec.setup.tp)},
      {"fully_sharded", of_layer(spec.setup.fully_sharded)},
      {"comm", of_layer(word(name(spec.setup.comm)))}};
  if (spec.adapters.rank.shares.empty()) {
    said.emplace_back("rank", largest_rank(spec.adapters.rank));
  }
  return said;
}

}  // namespace

void warn(Row& row, const std::string& sentence) {
  row.warning += (row.warning.empty() ? "" : "; ") + sentence;
}

Row describe_spec(const Case& spec, const std::string& backend) {
  Row row;
  for (const auto& [key, cell] : said_by(spec, backend)) {
    find_column(key)->set(row, cell);
  }
  return row;
}

std::vector<std::string_view> columns_of_spec(const Case& spec) {
  std::vector<std::string_view> keys;
  for (const auto& [key, cell] : said_by(spec, "")) {
    keys.push_back(key);
  }
  return keys;
}

Row describe_case(const Case& spec, const CaseStep& step, const std::string& backend) {
  const Problem& problem = step.op;
  Row row = describe_spec(spec, backend);
  row.ranks = ranks_text(problem);
  row.tokens = problem.tokens;
  row.in_features = problem.in_features;
  row.slots = problem.slots;
  row.active = problem.plan.active();
  row.rank = problem.rank.empty() ? 0 : *std::max_element(problem.rank.begin(), problem.rank.end());
  row.content = content_of(problem);
  const bool captured = backend == "auto" || backend == "panel";
  row.plan_limits = plan_limits_text({spec.plan.max_tokens, captured ? spec.plan.max_slots : 0});
  row.tuning = backend == "auto" ? tuning_text(problem.tuning) : "";
  const Work work = count_work(problem);
  row.bytes = work.bytes;
  row.weight_bytes = work.weight_bytes;
  row.flops = work.flops;
  if (step.layer) {
    describe_layer(row, *step.layer, spec.setup.comm);
  }
  return row;
}

void judge(Row& row, Status status, std::string message) {
  const bool doubt = status == Status::kMistrusted || status == Status::kInvalid;
  if (!doubt || row.status == Status::kPassed) {
    row.status = status;
    row.message = std::move(message);
  }
}

void add_verdict(Row& row, const Verdict& verdict) {
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
}

void add_measurement(Row& row, const Measurement& measurement) {
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
  row.samples_us.clear();
  for (const double seconds : measurement.samples_s) {
    row.samples_us.push_back(seconds * kMicroseconds);
  }
  row.samples = static_cast<std::int64_t>(measurement.samples_s.size());
  row.launches = measurement.launches;
  row.rotation_sets = measurement.rotation_sets;
  row.rotated_bytes = measurement.rotated_bytes;
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
  for (const std::string& sentence : measurement.warnings) {
    warn(row, sentence);
  }
  if (row.stolen_share > kMostStolenShare) {
    warn(row, disturbance(row));
  }
  row.interrupted = measurement.interrupted;
  if (row.interrupted) {
    warn(row, "interrupted");
  }
  judge_after_timing(row, measurement);
}

void add_touch_time(Row& row, const Measurement& touch) {
  row.touch_us = finite(touch.summary.median * kMicroseconds);
}

void add_plan_time(Row& row, std::optional<double> plan_s) {
  row.plan_us.reset();
  if (plan_s) {
    row.plan_us = finite(*plan_s * kMicroseconds);
  }
}

void add_floor(Row& row, const Problem& problem, const MeasureSettings& settings,
               const Ceilings& ceilings) {
  judge_floor(row, floor_of(count_work(problem), problem, settings.cache, ceilings));
  std::optional<double> shrink_us = row.shrink_us;  // what sets h to zero was timed with it
  if (shrink_us) {
    *shrink_us += row.zero_us.value_or(0);
  }
  judge_phase(row, "zero_us and shrink_us", shrink_us, half_of(problem, Op::kShrink), settings,
              ceilings);
  judge_phase(row, "expand_us", row.expand_us, half_of(problem, Op::kExpand), settings, ceilings);
}

void judge_part(Row& row, std::string_view what, double us, double noise_us, const Floor& floor) {
  const double floor_us = floor.seconds * kMicroseconds;
  if (us + noise_us < floor_us) {
    judge(
        row, Status::kInvalid,
        fmt::format("{}{:.3f} us is below what this machine can do ({:.3f} us): the measurement or "
                    "the ceilings are wrong; see `lora-bench device --refresh`",
                    what, us, floor_us));
  }
}

void judge_floor(Row& row, const Floor& floor) {
  // Who has nothing to do may launch nothing: no least time stands against that.
  const bool nothing_to_do = row.bytes == 0 && row.flops == 0;
  row.floor_us = floor.seconds * kMicroseconds;
  row.stream_us = floor.stream_seconds * kMicroseconds;
  row.bound_by = floor.bound_by;
  if (!row.time_us) {
    return;
  }
  const double time_us = *row.time_us;
  if (nothing_to_do && time_us < *row.floor_us) {
    for (auto* figure : {&row.floor_us, &row.floor_ratio, &row.stream_us, &row.stream_ratio}) {
      figure->reset();
    }
    row.bound_by.clear();
  }
  derive_metrics(row);
  // A clock that stands still or runs backwards must not end in a record.
  if (const std::string doubt = doubt_about(row); !doubt.empty()) {
    judge(row, Status::kInvalid, "the clock cannot be believed: " + doubt);
  }
  if (row.floor_us) {
    judge_part(row, "", time_us, row.noise_us.value_or(0), floor);
  }
}

void add_thresholds(Row& row, const Thresholds& thresholds) {
  row.max_regression = thresholds.max_regression;
  if (!row.time_us) {
    return;
  }
  const double time_us = *row.time_us;
  const double noise_us = row.noise_us.value_or(0);
  if (thresholds.max_time_us) {
    judge_limit(row, "time_us", time_us, *thresholds.max_time_us, noise_us);
  }
  if (thresholds.max_floor_ratio && row.floor_ratio) {
    judge_limit(row, "floor_ratio", *row.floor_ratio, *thresholds.max_floor_ratio,
                noise_us / row.floor_us.value_or(time_us));
  }
  if (thresholds.max_stream_ratio && row.stream_ratio) {
    judge_limit(row, "stream_ratio", *row.stream_ratio, *thresholds.max_stream_ratio,
                noise_us / row.stream_us.value_or(time_us));
  }
  if (thresholds.min_tokens_per_s && row.tokens_per_s) {
    const double noise = *row.tokens_per_s * noise_us / time_us;
    judge_limit(row, "time per token in s", 1 / *row.tokens_per_s, 1 / *thresholds.min_tokens_per_s,
                noise / (*row.tokens_per_s * *row.tokens_per_s));
  }
  if (thresholds.max_tax_pct && row.base_us) {  // a tax below its noise is judged as well
    judge_limit(row, "tax_pct", 100 * (time_us - *row.base_us) / *row.base_us,
                *thresholds.max_tax_pct, 100 * row.tax_noise_us.value_or(0) / *row.base_us);
  }
}

std::string shell_quoted(const std::string& word) {
  if (plain_word(word)) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string repro_command(const Case& spec, const std::string& backend, const RunRequest& request) {
  std::string command =
      fmt::format("lora-bench run {} --case {} --backends {}", shell_quoted(spec.scenario_file),
                  shell_quoted(spec.id), shell_quoted(backend));
  for (const std::string& override_text : request.overrides) {
    command += " --set " + shell_quoted(override_text);
  }
  if (!request.tuning_file.empty()) {
    command += " --tuning " + shell_quoted(request.tuning_file);
  }
  for (const ThresholdField& field : kThresholdFields) {
    if (const std::optional<double>& value = request.thresholds.*field.value) {
      command += fmt::format(" --threshold {}={}", field.name, *value);
    }
  }
  command += request.relations ? " --relations" : "";
  command += request.timing ? "" : " --no-time";
  command += request.touch ? " --touch" : "";
  command += request.counters ? " --counters" : "";
  if (request.max_cases != LoadOptions{}.max_cases) {
    command += fmt::format(" --max-cases {}", request.max_cases);
  }
  return command;
}

}  // namespace lora_bench
