#include "run/layer_row.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/sha256.h"
#include "core/units.h"
#include "run/describe.h"

namespace lora_bench {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;

}  // namespace

void describe_layer(Row& row, const LayerProblem& problem, Comm comm) {
  const ShardedLayer& layer = problem.layer;
  row.layer_kind = name(layer.kind);
  row.tp = layer.tp;
  row.fully_sharded = layer.fully_sharded;
  row.comm = name(comm);
  const ExchangedBytes sent = exchanged_bytes(problem);
  row.comm_bytes = sent.h + sent.y;
  row.content = sha256(fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", row.content, *row.layer_kind,
                                   layer.tp, layer.fully_sharded, layer.kv_heads, problem.base_bias,
                                   problem.missing_slices, layer.gather_output, layer.input_split))
                    .substr(0, 16);
  if (problem.skip_bias_add || layer.kind == LayerKind::kLogits) {
    row.content = sha256(fmt::format("{}|{}|{}|{}|{}", row.content, problem.skip_bias_add,
                                     layer.padding_unit, problem.soft_cap, problem.logit_scale))
                      .substr(0, 16);
  }
  if (comm != Comm::kNone) {
    row.content = sha256(fmt::format("{}|{}", row.content, name(comm))).substr(0, 16);
  }
  const LayerWork work = count_layer_work(shard_problem(problem, 0));
  row.bytes = work.layer.bytes;
  row.weight_bytes = work.layer.weight_bytes;
  row.flops = work.layer.flops;
}

void add_layer_measurement(Row& row, const LayerMeasurement& measurement) {
  add_measurement(row, measurement.layer);
  if (!measurement.together) {
    row.shard = measurement.shard;
  }
  if (measurement.comm_s) {
    row.comm_us = *measurement.comm_s * kMicrosecondsPerSecond;
    row.comm_h_us = *measurement.comm_h_s * kMicrosecondsPerSecond;
  }
  row.base_us = measurement.base_s * kMicrosecondsPerSecond;
  row.tax_noise_us = measurement.tax_noise_s * kMicrosecondsPerSecond;
  const double tax_us = *row.time_us - *row.base_us;
  if (tax_us <= *row.tax_noise_us) {  // which is no less than a tax below 0
    warn(row, fmt::format("tax < noise ({} us)", format_figure(*row.tax_noise_us)));
    return;
  }
  if (measurement.shrink_s && measurement.expand_s) {
    row.shrink_us = *measurement.shrink_s * kMicrosecondsPerSecond;
    row.expand_us = *measurement.expand_s * kMicrosecondsPerSecond;
    row.gap_us = tax_us - *row.shrink_us - *row.expand_us;
  }
  row.tax_us = tax_us;
  row.tax_pct = 100 * tax_us / *row.base_us;
}

void add_layer_floor(Row& row, const LayerProblem& problem, const MeasureSettings& settings,
                     const Ceilings& ceilings) {
  const ShardProblem part = shard_problem(problem, row.shard.value_or(0));
  const LayerWork work = count_layer_work(part);
  const Floor layer = floor_of(work.layer, part.lora, settings.cache, ceilings);
  const Floor base = floor_of(work.base, part.lora, settings.cache, ceilings);
  judge_floor(row, layer);
  if (row.base_us && work.base.bytes > 0) {  // of too quick a base the tax is too large
    judge_part(row, "base_us of ", *row.base_us, row.tax_noise_us.value_or(0), base);
  }
  // A measured curve may fall where it should rise.
  row.tax_floor_us = std::max(0.0, layer.seconds - base.seconds) * kMicrosecondsPerSecond;
  if (row.tax_us && *row.tax_floor_us > 0) {
    row.tax_ratio = *row.tax_us / *row.tax_floor_us;
  }
}

}  // namespace lora_bench
