#include "support/rows.h"

#include <cmath>

#include "core/random.h"
#include "report/columns.h"

using namespace lora_bench;

Context fixed_context() {
  Context context;
  context.tool_version = "0.1.0";
  context.commit = "abc1234";
  context.dirty = true;
  context.build = "Release";
  context.compiler = "GNU 12.2.0";
  context.cuda_compiler = "none";
  context.device_kind = "cpu";
  context.device_name = "Example CPU";
  context.device_identity = "example-cpu/8";
  context.driver = "6.1.0";
  context.multiprocessors = 8;
  context.cache_bytes = 33554432;
  context.memory_bytes = 67108864000;
  context.host = "bench";
  context.cpu = "Example CPU";
  context.started_utc = "2025-01-02T03:04:05Z";
  context.argv = {"lora-bench", "run", "decode.yaml", "--filter", "rank>=16"};
  context.scenario_hash = {{"decode", "00000000deadbeef"}};
  context.seed = 1;
  return context;
}

namespace {

Row fixed_row(const char* backend, std::int64_t decode, double time_us) {
  Row row;
  row.id.scenario = "decode";
  row.id.case_id = "qkv/decode=" + std::to_string(decode);
  row.id.backend = backend;
  row.id.point = {{"batch.decode", std::to_string(decode)}};
  row.id.tags = {"short"};
  row.step.op = "linear";
  row.step.dtype = "bf16";
  row.step.intermediate = "fp32";
  row.step.scale_at = "shrink";
  row.step.model = "llama-3.1-8b";
  row.step.layer = "qkv";
  row.step.in_features = 4096;
  row.step.out_features = "4096+1024+1024";
  row.step.skew = "uniform";
  row.step.order = "shuffled";
  row.step.ranks = "16";
  row.step.tokens = decode;
  row.step.slots = 8;
  row.step.active = decode < 8 ? decode : 8;
  row.step.rank = 16;
  row.step.no_adapter = 0.25;
  row.step.seed = 1;
  row.status = Status::kPassed;
  row.proof.levels = "exact+bounded+memory";
  row.proof.bound_share = 0.125;
  row.proof.rows_checked = 1;
  row.time.us = time_us;
  row.time.min_us = time_us * 0.875;
  row.time.q1_us = time_us * 0.9375;
  row.time.q3_us = time_us * 1.0625;
  row.time.max_us = time_us * 1.25;
  row.time.noise_us = 0.25;
  row.time.plan_us = 1.5;
  row.time.samples_us = {time_us * 0.875, time_us * 0.9375, time_us,
                         time_us,         time_us * 1.0625, time_us * 1.25};
  row.step.cache = "weights-cold";
  row.step.mode = "stream";
  row.time.samples = 6;
  row.time.launches = 4;
  row.time.rotation_sets = 4;
  row.time.rotated_bytes = 7600000;
  row.floor.us = 20;
  row.floor.stream_us = 20;
  row.floor.bound_by = "memory";
  row.step.bytes = 2000000;
  row.step.weight_bytes = 1900000;
  row.step.flops = 10000000;
  row.repro = "lora-bench run decode.yaml --case " + row.id.case_id;
  derive_metrics(row);
  return row;
}

Row without_time(Row row, Status status, const char* message) {
  Row bare = row;
  bare.status = status;
  bare.message = message;
  for (const char* key :
       {"time_us", "time_min_us", "time_q1_us", "time_q3_us", "time_max_us", "noise_us", "plan_us",
        "samples_us", "samples", "launches", "rotation_sets", "rotated_bytes", "floor_ratio",
        "stream_ratio", "tokens_per_s", "bandwidth_GBps", "compute_TFLOPps", "cache", "mode"}) {
    find_column(key)->set(bare, Cell{});
  }
  return bare;
}

// Texts that break careless writers: separators, quotes, newlines, UTF-8, control characters.
const std::vector<std::string>& awkward_texts() {
  static const std::vector<std::string> texts{
      "",     "plain",       "a,b",          "say \"yes\"", "two\nlines",
      "\r\n", "pipe | here", "caf\u00e9",    "\u6570",      "tab\there",
      "\x01", "null",        "{\"kind\":1}", "=1+1"};
  return texts;
}

double random_figure(std::uint64_t seed, std::uint64_t index) {
  const double unit = random_unit(seed, 7, index) - 0.5;
  return std::ldexp(unit, static_cast<int>(random_below(seed, 8, index, 2000)) - 1000);
}

Cell random_cell(const Column& column, std::uint64_t seed, std::uint64_t index) {
  const auto text = [&](std::uint64_t stream) {
    return awkward_texts()[random_below(seed, stream, index, awkward_texts().size())];
  };
  switch (column.type) {
    case CellType::kFlag:
      return random_below(seed, 1, index, 2) == 1;
    case CellType::kCount:
      return static_cast<std::int64_t>(random_bits(seed, 2, index));
    case CellType::kFigure:
      return random_figure(seed, index);
    case CellType::kText:
      return text(3);
    case CellType::kTexts:
      return std::vector<std::string>{text(3), text(4)};
    case CellType::kFigures:
      return std::vector<double>{random_figure(seed, index), 0.1, -0.0};
    case CellType::kPairs:
      return std::map<std::string, std::string>{{text(3), text(4)}, {"key", text(5)}};
  }
  return {};
}

}  // namespace

std::vector<Row> fixed_rows() {
  std::vector<Row> rows{fixed_row("cpu", 8, 25), fixed_row("naive", 8, 50.5),
                        fixed_row("cpu", 64, 70.125), fixed_row("naive", 64, 65)};
  rows[1].warning = "throttled: sw_power_cap";
  rows[2].limits.missed = "floor_ratio 3.51 > 1.5";
  rows.push_back(without_time(rows[0], Status::kFailed,
                              "exact: 12 of 4096 wrong | first at token 3,\nslice 1"));
  rows.back().id.backend = "chunked";
  rows.back().proof.hypothesis = "wrong-adapter";
  rows.push_back(without_time(rows[2], Status::kSkipped, "needs 9.1 GB, 4.0 GB are free"));
  rows.back().id.backend = "chunked";
  rows.back().limits.missed.clear();
  return rows;
}

Row random_row(std::uint64_t seed) {
  Row row;
  std::uint64_t index = 0;
  for (const Column& column : columns()) {
    ++index;
    if (column.key == "status") {
      row.status = static_cast<Status>(random_below(seed, 9, index, 7));
    } else if (random_below(seed, 10, index, 4) != 0) {
      column.set(row, random_cell(column, seed, index));
    }
  }
  return row;
}

std::vector<Row> repeats_like(const Row& row, double spread, std::int64_t count) {
  std::vector<Row> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const double place =
        count > 1 ? 2 * static_cast<double>(i) / static_cast<double>(count - 1) - 1 : 0;
    const double factor = 1 + spread * place;
    Row repeat = row;
    repeat.id.repetition = i;
    for (auto* time : {&repeat.time.us, &repeat.time.min_us, &repeat.time.q1_us, &repeat.time.q3_us,
                       &repeat.time.max_us}) {
      if (*time) {
        **time *= factor;
      }
    }
    for (double& sample : repeat.time.samples_us) {
      sample *= factor;
    }
    if (repeat.floor.ratio) {
      derive_metrics(repeat);
    }
    rows.push_back(std::move(repeat));
  }
  return rows;
}
