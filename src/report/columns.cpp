#include "report/columns.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/error.h"

namespace lora_bench {
namespace {

struct Words {
  std::string key, header, unit, meaning, formula;
};

struct Shown {
  bool in_table = false;
  int priority = 9;
};

template <class T>
constexpr CellType cell_type() {
  if constexpr (std::same_as<T, bool>) {
    return CellType::kFlag;
  } else if constexpr (std::same_as<T, std::int64_t>) {
    return CellType::kCount;
  } else if constexpr (std::same_as<T, double>) {
    return CellType::kFigure;
  } else if constexpr (std::same_as<T, std::string>) {
    return CellType::kText;
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    return CellType::kTexts;
  } else if constexpr (std::same_as<T, std::vector<double>>) {
    return CellType::kFigures;
  } else {
    return CellType::kPairs;
  }
}

template <class T>
Column column(Words words, T Row::*field, Shown shown = {}) {
  return {std::move(words.key),
          std::move(words.header),
          std::move(words.unit),
          std::move(words.meaning),
          std::move(words.formula),
          shown.in_table,
          shown.priority,
          cell_type<T>(),
          [field](const Row& row) -> Cell { return row.*field; },
          [field](Row& row, const Cell& cell) {
            row.*field = std::holds_alternative<T>(cell) ? std::get<T>(cell) : T{};
          }};
}

template <class T>
Column column(Words words, std::optional<T> Row::*field, Shown shown = {}) {
  return {std::move(words.key),
          std::move(words.header),
          std::move(words.unit),
          std::move(words.meaning),
          std::move(words.formula),
          shown.in_table,
          shown.priority,
          cell_type<T>(),
          [field](const Row& row) -> Cell {
            return (row.*field).has_value() ? Cell{*(row.*field)} : Cell{};
          },
          [field](Row& row, const Cell& cell) {
            row.*field = std::holds_alternative<T>(cell) ? std::optional<T>(std::get<T>(cell))
                                                         : std::nullopt;
          }};
}

Column status_column() {
  Column status =
      column({"status", "status", "",
              "PASSED, FAILED, MISTRUSTED, SKIPPED, INVALID, HUNG or ERROR; about correctness", ""},
             &Row::message, {true, 0});
  status.get = [](const Row& row) -> Cell { return std::string(name(row.status)); };
  status.set = [](Row& row, const Cell& cell) {
    const std::string text =
        std::holds_alternative<std::string>(cell) ? std::get<std::string>(cell) : "";
    const std::optional<Status> value = parse_status(text);
    if (!value) {
      throw UsageError("unknown status '" + text + "'");
    }
    row.status = *value;
  };
  return status;
}

std::vector<Column> identity_columns() {
  return {
      column({"scenario", "scenario", "", "name of the scenario", ""}, &Row::scenario),
      column({"case", "case", "", "id of the case, unique in its scenario, stable across runs", ""},
             &Row::case_id, {true, 0}),
      column({"backend", "backend", "", "implementation that ran", ""}, &Row::backend, {true, 0}),
      column({"plugin", "plugin", "",
              "file of a backend from outside and the hash of its content; empty for built-in ones",
              ""},
             &Row::plugin),
      column({"peer", "peer", "",
              "package and version of an implementation that scripts/peers ran; empty for backends",
              ""},
             &Row::peer),
      column({"repetition", "repetition", "", "which repeat of --repeat, from 0", ""},
             &Row::repetition),
      column({"point", "point", "", "swept keys of the scenario with their values", ""},
             &Row::point),
      column({"tags", "tags", "", "tags of the scenario", ""}, &Row::tags),
      status_column(),
  };
}

std::vector<Column> case_columns() {
  return {
      column({"op", "op", "", "shrink, expand, linear, embedding, logits or layer", ""}, &Row::op),
      column({"dtype", "dtype", "", "type of x, A, B, bias and y", ""}, &Row::dtype),
      column({"intermediate", "h dtype", "", "type of h between shrink and expand", ""},
             &Row::intermediate),
      column({"scale_at", "scale at", "", "which half applies the scale: shrink or expand", ""},
             &Row::scale_at),
      column(
          {"model", "model", "", "model whose layer has this shape; empty for a custom shape", ""},
          &Row::model),
      column({"layer", "layer", "", "name of the projection", ""}, &Row::layer),
      column({"in_features", "K", "", "columns of x (K)", ""}, &Row::in_features),
      column({"out_features", "N", "", "widths of the slices (N_i), joined by '+'", ""},
             &Row::out_features),
      column({"tokens", "tokens", "", "rows of x in the step (M)", ""}, &Row::tokens, {true, 5}),
      column({"slots", "slots", "", "adapters resident", ""}, &Row::slots),
      column({"active", "active", "", "distinct adapters that the batch touches", ""}, &Row::active,
             {true, 6}),
      column({"rank", "rank", "", "largest rank among the slots", ""}, &Row::rank, {true, 5}),
      column({"ranks", "ranks", "", "the rank law as written in the scenario", ""}, &Row::ranks),
      column({"skew", "skew", "", "law that binds sequences to adapters", ""}, &Row::skew),
      column({"order", "order", "", "order of the sequences in the step", ""}, &Row::order),
      column({"no_adapter", "no adapter", "1", "share of sequences without an adapter", ""},
             &Row::no_adapter),
      column({"add_inputs", "adds", "", "true: y += delta; false: y = delta", ""},
             &Row::add_inputs),
      column({"bias", "bias", "", "adapters have a bias", ""}, &Row::bias),
      column({"seed", "seed", "", "seed of batch, adapters and tensors", ""}, &Row::seed),
      column({"content", "content", "",
              "hash of the drawn step: sizes, ranks, adapter of each token", ""},
             &Row::content),
      column(
          {"plan_limits", "plan limits", "",
           "rows and adapters in use that the launch is captured for; empty: the batch's own", ""},
          &Row::plan_limits),
      column({"tuning", "tuning", "",
              "what backend auto was told to launch; empty where it chose by itself", ""},
             &Row::tuning),
  };
}

std::vector<Column> proof_columns() {
  return {
      column({"message", "message", "", "why a row is not PASSED, one line", ""}, &Row::message),
      column({"warning", "warning", "",
              "what makes the time doubtful: throttled, noisy, interrupted", ""},
             &Row::warning),
      column({"levels", "levels", "", "levels of proof that were run and held", ""}, &Row::levels),
      column({"first_wrong", "first wrong", "",
              "up to ten wrong elements: token, adapter, slice, column, expected, got, bound", ""},
             &Row::first_wrong),
      column({"hypothesis", "hypothesis", "", "key of the fault that fits a wrong result", ""},
             &Row::hypothesis),
      column({"numerics", "numerics", "", "arithmetic that the backend declared", ""},
             &Row::numerics),
      column({"bound_share", "of bound", "1", "worst share of the error bound that was used",
              "max over elements of |got - expected| / bound"},
             &Row::bound_share),
      column({"rows_checked", "checked", "1", "share of rows compared in full",
              "rows compared / rows of the output"},
             &Row::rows_checked),
  };
}

std::vector<Column> time_columns() {
  return {
      column({"time_us", "time us", "us", "median time of one launch", "median of samples_us"},
             &Row::time_us, {true, 0}),
      column({"time_min_us", "min us", "us", "shortest sample", "minimum of samples_us"},
             &Row::time_min_us),
      column(
          {"time_q1_us", "q1 us", "us", "lower quartile", "25 % quantile of samples_us (type 7)"},
          &Row::time_q1_us),
      column(
          {"time_q3_us", "q3 us", "us", "upper quartile", "75 % quantile of samples_us (type 7)"},
          &Row::time_q3_us),
      column({"time_max_us", "max us", "us", "longest sample", "maximum of samples_us"},
             &Row::time_max_us),
      column({"noise_us", "noise us", "us", "difference of the same code with itself (A/A)",
              "max(|median of even samples - median of odd samples|, half the 95 % interval of the "
              "median)"},
             &Row::noise_us, {true, 8}),
      column({"alone_us", "alone us", "us",
              "what one launch adds between two of something else, with which it cannot overlap; "
              "not of layers",
              "median of (sequence with separators - separators) / launches"},
             &Row::alone_us),
      column({"alone_noise_us", "alone noise us", "us", "how well alone_us is known",
              "half the 95 % interval of the median of those differences"},
             &Row::alone_noise_us),
      column({"plan_us", "plan us", "us",
              "time to group the batch's ids by adapter where the backend runs; in no other time",
              "median of 9 runs of many builds"},
             &Row::plan_us, {true, 9}),
      column({"zero_us", "zero us", "us",
              "of a linear op with `measure.phases`: setting h to zero, launched by itself", ""},
             &Row::zero_us),
      column({"shrink_us", "shrink us", "us",
              "with `measure.phases`: shrink by itself, without setting h to zero; of a layer: "
              "after its "
              "base, what that takes longer",
              ""},
             &Row::shrink_us),
      column({"expand_us", "expand us", "us",
              "with `measure.phases`: expand by itself; of a layer: after base and shrink", ""},
             &Row::expand_us),
      column({"gap_us", "gap us", "us",
              "what the parts leave of the whole: launches between them, less what they share",
              "time_us (of a layer tax_us) - zero_us - shrink_us - expand_us"},
             &Row::gap_us),
      column(
          {"samples_us", "samples us", "us", "every sample, time of one launch; in JSON lines only",
           "time of a sample / launches"},
          &Row::samples_us),
      column({"cache", "cache", "", "what is cold when a launch begins: weights-cold, cold or hot",
              ""},
             &Row::cache),
      column(
          {"mode", "mode", "", "how launches are submitted: graph or stream; host on the CPU", ""},
          &Row::mode),
      column({"samples", "samples", "", "samples kept", ""}, &Row::samples),
      column({"samples_dropped", "dropped", "",
              "samples dropped since the SM clock was low; empty where no clock is read", ""},
             &Row::samples_dropped),
      column({"launches", "launches", "", "launches in one sample", ""}, &Row::launches),
      column({"rotation_sets", "sets", "", "operand sets that one sample rotates through", ""},
             &Row::rotation_sets),
      column({"rotated_bytes", "rotated B", "B", "bytes of the rotated operands together", ""},
             &Row::rotated_bytes),
  };
}

// Of op layer; empty elsewhere.
std::vector<Column> layer_columns() {
  return {
      column({"layer_kind", "kind", "", "what the layer is to its shards, see layers.md", ""},
             &Row::layer_kind),
      column(
          {"layer_count", "count", "", "how many such layers a forward pass of the model has", ""},
          &Row::layer_count),
      column({"tp", "tp", "", "shards that the layer is divided into", ""}, &Row::tp, {true, 5}),
      column({"fully_sharded", "fully", "", "A and h are divided too", ""}, &Row::fully_sharded),
      column({"comm", "comm", "",
              "what exchanges results while time is taken; none: each shard is timed alone", ""},
             &Row::comm),
      column({"comm_bytes", "comm B", "B", "what a shard must send of y and of h",
              "gather: (tp - 1) * its part; sum: 2 * (tp - 1) / tp * the whole"},
             &Row::comm_bytes),
      column({"comm_us", "comm us", "us",
              "the exchanges of the layer with adapters, launched by themselves; with `comm: nccl`",
              ""},
             &Row::comm_us),
      column({"comm_h_us", "comm h us", "us", "of these that of h, which the base has not", ""},
             &Row::comm_h_us),
      column(
          {"overlap", "overlap", "",
           "how the adapters' part ran beside the base: serial, shrink, delta, epilogue or fused",
           ""},
          &Row::overlap),
      column({"shard", "shard", "",
              "the slowest shard, whose times these are; empty where all run together", ""},
             &Row::shard),
      column({"base_us", "base us", "us", "median time of the same shard without adapters",
              "median of samples taken in turn with those of time_us"},
             &Row::base_us, {true, 3}),
      column({"tax_us", "tax us", "us",
              "what the adapters add to the base; empty where it is below its noise",
              "time_us - base_us"},
             &Row::tax_us, {true, 1}),
      column({"tax_pct", "tax %", "%", "the same in percent of the base", "100 * tax_us / base_us"},
             &Row::tax_pct, {true, 2}),
      column({"tax_noise_us", "tax noise us", "us", "how well the difference is known",
              "half the 95 % interval of the median of layer - base, or what else doubts it"},
             &Row::tax_noise_us),
      column({"tax_floor_us", "tax floor us", "us",
              "least that the adapters add, given that the base runs anyway",
              "floor of base and adapters - floor of the base"},
             &Row::tax_floor_us),
      column({"tax_ratio", "x tax floor", "1", "how many times its floor the tax is",
              "tax_us / tax_floor_us"},
             &Row::tax_ratio, {true, 2}),
  };
}

std::vector<Column> metric_columns() {
  return {
      column({"floor_us", "floor us", "us",
              "least time in which this machine can do the case: nothing right is faster",
              "max(bytes that no cache can spare at the memory curve, all bytes at the cache "
              "curve, flops / peak, launch cost)"},
             &Row::floor_us, {true, 3}),
      column({"floor_ratio", "x floor", "1", "how many times the floor the launch takes",
              "time_us / floor_us"},
             &Row::floor_ratio, {true, 1}),
      column({"stream_us", "stream us", "us",
              "one pass over all bytes of the case, from memory: a yardstick that caches may beat",
              "max(all bytes at the memory curve, flops / peak, launch cost)"},
             &Row::stream_us),
      column({"stream_ratio", "x stream", "1", "how many times that pass the launch takes",
              "time_us / stream_us"},
             &Row::stream_ratio, {true, 8}),
      column({"touch_us", "touch us", "us",
              "with `--touch`: a kernel of ours that only touches every operand once, timed alike",
              ""},
             &Row::touch_us),
      column({"alone_ratio", "x floor alone", "1",
              "how many times the floor the launch takes between others", "alone_us / floor_us"},
             &Row::alone_ratio),
      column({"speedup", "speedup", "1",
              "how many times as long the best PASSED peer takes; only with `report --peers`",
              "least time_us of the peers of the case / time_us; with --rank-by alone_us of that"},
             &Row::speedup, {true, 1}),
      column({"bound_by", "bound by", "", "which term is the floor: memory, cache, flops or launch",
              ""},
             &Row::bound_by, {true, 7}),
      column({"tokens_per_s", "tokens/s", "1/s", "tokens through this layer in a second",
              "tokens / (time_us * 1e-6)"},
             &Row::tokens_per_s, {true, 4}),
      column({"bandwidth_GBps", "GB/s", "GB/s", "bytes that had to move in a second",
              "bytes / (time_us * 1e3)"},
             &Row::bandwidth_GBps, {true, 2}),
      column({"compute_TFLOPps", "TFLOP/s", "TFLOP/s", "operations that had to be done in a second",
              "flops / (time_us * 1e6)"},
             &Row::compute_TFLOPps),
      column({"bytes", "bytes", "B",
              "bytes the case must move: each distinct active adapter once at its own rank, x, h "
              "where it is an operand, y",
              ""},
             &Row::bytes),
      column({"weight_bytes", "weight B", "B", "the part of bytes that is A, B and bias", ""},
             &Row::weight_bytes),
      column({"flops", "flops", "1", "operations the case must do; a multiply-add is two", ""},
             &Row::flops),
  };
}

// Of `run --counters`; empty elsewhere.
std::vector<Column> counter_columns() {
  return {
      column({"dram_read_bytes", "read B", "B",
              "with `run --counters`: bytes that one launch had read from memory", ""},
             &Row::dram_read_bytes, {true, 4}),
      column({"dram_written_bytes", "written B", "B",
              "with `run --counters`: bytes that were written to memory meanwhile", ""},
             &Row::dram_written_bytes, {true, 6}),
      column(
          {"l2_hit_rate", "L2 hits", "1",
           "with `run --counters`: share of the L2's look-ups that found their sector there", ""},
          &Row::l2_hit_rate, {true, 5}),
      column({"sm_cycles", "SM cycles", "1",
              "with `run --counters`: cycles in which the busiest multiprocessor had work", ""},
             &Row::sm_cycles, {true, 6}),
  };
}

std::vector<Column> condition_columns() {
  return {
      column({"clock_mhz", "MHz", "MHz",
              "SM clock of a GPU, median over its samples; frequency of a CPU after them", ""},
             &Row::clock_mhz),
      column({"temperature_c", "deg C", "degC", "temperature of the device", ""},
             &Row::temperature_c),
      column({"power_w", "W", "W", "power drawn by the device", ""}, &Row::power_w),
      column({"load", "load", "1", "load average of the last minute per core (CPU)", ""},
             &Row::load),
      column({"stolen_share", "stolen", "1",
              "of the CPU time that sampling wanted, the share that others had (CPU)",
              "(waited + stolen) / (ran + waited + stolen)"},
             &Row::stolen_share),
      column({"yardstick_us", "yardstick us", "us",
              "a fixed piece of work before and after sampling: what the machine could do (CPU)",
              "mean of both"},
             &Row::yardstick_us),
      column({"throttle", "throttle", "", "reasons the device gave for a lower clock", ""},
             &Row::throttle),
      column({"governor", "governor", "", "frequency governor (CPU)", ""}, &Row::governor),
      column({"max_regression", "max regression", "1",
              "slowdown above which compare fails this row; empty = its default", ""},
             &Row::max_regression),
      column(
          {"threshold_missed", "missed", "", "thresholds of the scenario that the row missed", ""},
          &Row::threshold_missed),
      column({"threshold_undecided", "undecided", "",
              "thresholds that the row exceeds by less than its noise", ""},
             &Row::threshold_undecided),
      column({"wall_s", "wall s", "s", "what the row cost, proof included", ""}, &Row::wall_s),
      column({"repro", "repro", "", "command that runs this row alone", ""}, &Row::repro),
  };
}

constexpr std::array<std::string_view, 38> kBeforeRun{
    "scenario",     "case",         "backend",    "point",        "tags",          "op",
    "dtype",        "intermediate", "scale_at",   "model",        "layer",         "in_features",
    "out_features", "tokens",       "slots",      "active",       "rank",          "ranks",
    "skew",         "order",        "no_adapter", "add_inputs",   "bias",          "seed",
    "cache",        "mode",         "bytes",      "weight_bytes", "flops",         "content",
    "plan_limits",  "tuning",       "layer_kind", "tp",           "fully_sharded", "comm",
    "layer_count",  "comm_bytes"};

std::vector<Column> all_columns() {
  std::vector<Column> all;
  for (auto* part : {&identity_columns, &case_columns, &time_columns, &layer_columns,
                     &metric_columns, &counter_columns, &proof_columns, &condition_columns}) {
    std::vector<Column> some = part();
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  for (Column& column : all) {
    column.before_run =
        std::find(kBeforeRun.begin(), kBeforeRun.end(), column.key) != kBeforeRun.end();
  }
  return all;
}

}  // namespace

const std::vector<Column>& columns() {
  static const std::vector<Column> all = all_columns();
  return all;
}

const Column* find_column(std::string_view key) {
  const auto found = std::find_if(columns().begin(), columns().end(),
                                  [&](const Column& c) { return c.key == key; });
  return found == columns().end() ? nullptr : &*found;
}

Cell cell_of(const Row& row, std::string_view key) {
  if (const Column* found = find_column(key)) {
    return found->get(row);
  }
  const auto swept = row.point.find(std::string(key));
  return swept == row.point.end() ? Cell{} : Cell{swept->second};
}

bool is_tax_known(const Row& row) { return row.tax_us.value_or(0) > row.tax_noise_us.value_or(0); }

void derive_metrics(Row& row) {
  if (!row.time_us || !(*row.time_us > 0)) {
    return;
  }
  const double time_us = *row.time_us;
  if (row.floor_us && *row.floor_us > 0) {
    row.floor_ratio = time_us / *row.floor_us;
    if (row.alone_us) {
      row.alone_ratio = *row.alone_us / *row.floor_us;
    }
  }
  if (row.stream_us && *row.stream_us > 0) {
    row.stream_ratio = time_us / *row.stream_us;
  }
  row.tokens_per_s = static_cast<double>(row.tokens) / (time_us * 1e-6);
  row.bandwidth_GBps = static_cast<double>(row.bytes) / (time_us * 1e3);
  row.compute_TFLOPps = static_cast<double>(row.flops) / (time_us * 1e6);
}

}  // namespace lora_bench
