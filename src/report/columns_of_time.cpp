#include "report/column_of_field.h"

namespace lora_bench {

namespace {

std::vector<Column> columns_of_a_launch() {
  return {
      column({"time_us", "time us", "us", "median time of one launch", "median of samples_us"},
             &Row::Time::us, {true, 0}),
      column({"time_min_us", "min us", "us", "shortest sample", "minimum of samples_us"},
             &Row::Time::min_us),
      column(
          {"time_q1_us", "q1 us", "us", "lower quartile", "25 % quantile of samples_us (type 7)"},
          &Row::Time::q1_us),
      column(
          {"time_q3_us", "q3 us", "us", "upper quartile", "75 % quantile of samples_us (type 7)"},
          &Row::Time::q3_us),
      column({"time_max_us", "max us", "us", "longest sample", "maximum of samples_us"},
             &Row::Time::max_us),
      column({"noise_us", "noise us", "us", "difference of the same code with itself (A/A)",
              "max(|median of even samples - median of odd samples|, half the 95 % interval of the "
              "median)"},
             &Row::Time::noise_us, {true, 8}),
      column({"alone_us", "alone us", "us",
              "what one launch adds between two of something else, with which it cannot overlap; "
              "not of layers",
              "median of (sequence with separators - separators) / launches"},
             &Row::Time::alone_us),
      column({"alone_noise_us", "alone noise us", "us", "how well alone_us is known",
              "half the 95 % interval of the median of those differences"},
             &Row::Time::alone_noise_us),
      column({"plan_us", "plan us", "us",
              "time to group the batch's ids by adapter where the backend runs; in no other time",
              "median of 9 runs of many builds"},
             &Row::Time::plan_us, {true, 9}),
      column({"first_call_ms", "first call ms", "ms",
              "time of the host in the first launch of the case, which compiles and loads what is "
              "not there yet; in no other time",
              ""},
             &Row::Time::first_call_ms),
      column({"zero_us", "zero us", "us",
              "of a linear op with `measure.phases`: setting h to zero, launched by itself", ""},
             &Row::Time::zero_us),
      column({"shrink_us", "shrink us", "us",
              "with `measure.phases`: shrink by itself, without setting h to zero; of a layer: "
              "after its "
              "base, what that takes longer",
              ""},
             &Row::Time::shrink_us),
      column({"expand_us", "expand us", "us",
              "with `measure.phases`: expand by itself; of a layer: after base and shrink", ""},
             &Row::Time::expand_us),
      column({"gap_us", "gap us", "us",
              "what the parts leave of the whole: launches between them, less what they share",
              "time_us (of a layer tax_us) - zero_us - shrink_us - expand_us"},
             &Row::Time::gap_us),
  };
}

std::vector<Column> columns_of_sampling() {
  return {
      column(
          {"samples_us", "samples us", "us", "every sample, time of one launch; in JSON lines only",
           "time of a sample / launches"},
          &Row::Time::samples_us),
      column({"cache", "cache", "", "what is cold when a launch begins: weights-cold, cold or hot",
              ""},
             &Row::Step::cache),
      column(
          {"mode", "mode", "", "how launches are submitted: graph or stream; host on the CPU", ""},
          &Row::Step::mode),
      column({"samples", "samples", "", "samples kept", ""}, &Row::Time::samples),
      column({"samples_dropped", "dropped", "",
              "samples dropped since the SM clock was low; empty where no clock is read", ""},
             &Row::Time::samples_dropped),
      column({"launches", "launches", "", "launches in one sample", ""}, &Row::Time::launches),
      column({"rotation_sets", "sets", "", "operand sets that one sample rotates through", ""},
             &Row::Time::rotation_sets),
      column({"rotated_bytes", "rotated B", "B", "bytes of the rotated operands together", ""},
             &Row::Time::rotated_bytes),
  };
}

}  // namespace

std::vector<Column> time_columns() {
  std::vector<Column> columns = columns_of_a_launch();
  for (Column& column : columns_of_sampling()) {
    columns.push_back(std::move(column));
  }
  return columns;
}

// Of op layer; empty elsewhere.
std::vector<Column> layer_columns() {
  return {
      column({"layer_kind", "kind", "", "what the layer is to its shards, see layers.md", ""},
             &Row::Layer::kind),
      column(
          {"layer_count", "count", "", "how many such layers a forward pass of the model has", ""},
          &Row::Layer::count),
      column({"tp", "tp", "", "shards that the layer is divided into", ""}, &Row::Layer::tp,
             {true, 5}),
      column({"fully_sharded", "fully", "", "A and h are divided too", ""},
             &Row::Layer::fully_sharded),
      column({"comm", "comm", "",
              "what exchanges results while time is taken; none: each shard is timed alone", ""},
             &Row::Layer::comm),
      column({"comm_bytes", "comm B", "B", "what a shard must send of y and of h",
              "gather: (tp - 1) * its part; sum: 2 * (tp - 1) / tp * the whole"},
             &Row::Layer::comm_bytes),
      column({"comm_us", "comm us", "us",
              "the exchanges of the layer with adapters, launched by themselves; with `comm: nccl`",
              ""},
             &Row::Layer::comm_us),
      column({"comm_h_us", "comm h us", "us", "of these that of h, which the base has not", ""},
             &Row::Layer::comm_h_us),
      column(
          {"overlap", "overlap", "",
           "how the adapters' part ran beside the base: serial, shrink, delta, epilogue or fused",
           ""},
          &Row::Layer::overlap),
      column({"shard", "shard", "",
              "the slowest shard, whose times these are; empty where all run together", ""},
             &Row::Layer::shard),
      column({"base_us", "base us", "us", "median time of the same shard without adapters",
              "median of samples taken in turn with those of time_us"},
             &Row::Tax::base_us, {true, 3}),
      column({"tax_us", "tax us", "us",
              "what the adapters add to the base; empty where it is below its noise",
              "time_us - base_us"},
             &Row::Tax::us, {true, 1}),
      column({"tax_pct", "tax %", "%", "the same in percent of the base", "100 * tax_us / base_us"},
             &Row::Tax::pct, {true, 2}),
      column({"tax_noise_us", "tax noise us", "us", "how well the difference is known",
              "half the 95 % interval of the median of layer - base, or what else doubts it"},
             &Row::Tax::noise_us),
      column({"tax_floor_us", "tax floor us", "us",
              "least that the adapters add, given that the base runs anyway",
              "floor of base and adapters - floor of the base"},
             &Row::Tax::floor_us),
      column({"tax_ratio", "x tax floor", "1", "how many times its floor the tax is",
              "tax_us / tax_floor_us"},
             &Row::Tax::ratio, {true, 2}),
  };
}

std::vector<Column> metric_columns() {
  return {
      column({"floor_us", "floor us", "us",
              "least time in which this machine can do the case: nothing right is faster",
              "max(bytes that no cache can spare at the memory curve, all bytes at the cache "
              "curve, distinct bytes at the curve of those that come again, flops / peak, launch "
              "cost)"},
             &Row::Floor::us, {true, 3}),
      column({"floor_ratio", "x floor", "1", "how many times the floor the launch takes",
              "time_us / floor_us"},
             &Row::Floor::ratio, {true, 1}),
      column({"stream_us", "stream us", "us",
              "one pass over all bytes of the case, from memory: a yardstick that caches may beat",
              "max(all bytes at the memory curve, flops / peak, launch cost)"},
             &Row::Floor::stream_us),
      column({"stream_ratio", "x stream", "1", "how many times that pass the launch takes",
              "time_us / stream_us"},
             &Row::Floor::stream_ratio, {true, 8}),
      column({"touch_us", "touch us", "us",
              "with `--touch`: a kernel of ours that only touches every operand once, timed alike",
              ""},
             &Row::Time::touch_us),
      column({"alone_ratio", "x floor alone", "1",
              "how many times the floor the launch takes between others", "alone_us / floor_us"},
             &Row::Floor::alone_ratio),
      column({"speedup", "speedup", "1",
              "how many times as long the best PASSED peer takes; filled by `report`",
              "least time_us of the peers of the case / time_us; with --rank-by alone_us of that"},
             &Row::Rates::speedup, {true, 1}),
      column({"bound_by", "bound by", "", "which term is the floor: memory, cache, flops or launch",
              ""},
             &Row::Floor::bound_by, {true, 7}),
      column({"tokens_per_s", "tokens/s", "1/s", "tokens through this layer in a second",
              "tokens / (time_us * 1e-6)"},
             &Row::Rates::tokens_per_s, {true, 4}),
      column({"bandwidth_GBps", "GB/s", "GB/s", "bytes that had to move in a second",
              "bytes / (time_us * 1e3)"},
             &Row::Rates::bandwidth_GBps, {true, 2}),
      column({"compute_TFLOPps", "TFLOP/s", "TFLOP/s", "operations that had to be done in a second",
              "flops / (time_us * 1e6)"},
             &Row::Rates::compute_TFLOPps),
      column({"bytes", "bytes", "B",
              "bytes the case must move: each distinct active adapter once at its own rank, x, h "
              "where it is an operand, y",
              ""},
             &Row::Step::bytes),
      column({"weight_bytes", "weight B", "B", "the part of bytes that is A, B and bias", ""},
             &Row::Step::weight_bytes),
      column({"flops", "flops", "1", "operations the case must do; a multiply-add is two", ""},
             &Row::Step::flops),
  };
}

// Of `run --counters`; empty elsewhere.
std::vector<Column> counter_columns() {
  return {
      column({"dram_read_bytes", "read B", "B",
              "with `run --counters`: bytes that one launch had read from memory", ""},
             &Row::Counted::dram_read_bytes, {true, 4}),
      column({"dram_written_bytes", "written B", "B",
              "with `run --counters`: bytes that were written to memory meanwhile", ""},
             &Row::Counted::dram_written_bytes, {true, 6}),
      column(
          {"l2_hit_rate", "L2 hits", "1",
           "with `run --counters`: share of the L2's look-ups that found their sector there", ""},
          &Row::Counted::l2_hit_rate, {true, 5}),
      column({"sm_cycles", "SM cycles", "1",
              "with `run --counters`: cycles in which the busiest multiprocessor had work", ""},
             &Row::Counted::sm_cycles, {true, 6}),
  };
}

bool is_tax_known(const Row& row) { return row.tax.us.value_or(0) > row.tax.noise_us.value_or(0); }

void derive_metrics(Row& row) {
  if (!row.time.us || !(*row.time.us > 0)) {
    return;
  }
  const double time_us = *row.time.us;
  if (row.floor.us && *row.floor.us > 0) {
    row.floor.ratio = time_us / *row.floor.us;
    if (row.time.alone_us) {
      row.floor.alone_ratio = *row.time.alone_us / *row.floor.us;
    }
  }
  if (row.floor.stream_us && *row.floor.stream_us > 0) {
    row.floor.stream_ratio = time_us / *row.floor.stream_us;
  }
  if (row.tax.us && row.tax.floor_us > 0) {
    row.tax.ratio = *row.tax.us / *row.tax.floor_us;
  }
  row.rates.tokens_per_s = static_cast<double>(row.step.tokens) / (time_us * 1e-6);
  row.rates.bandwidth_GBps = static_cast<double>(row.step.bytes) / (time_us * 1e3);
  row.rates.compute_TFLOPps = static_cast<double>(row.step.flops) / (time_us * 1e6);
}

}  // namespace lora_bench
