#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"

namespace lora_bench {

// One result: case x backend x verdict x measurement x metrics. Every field but the last is a
// column of report/columns.h; anything a sink prints can be made again from a stored row.
struct Row {
  // identity
  std::string scenario, case_id, backend;
  std::int64_t repetition = 0;               // of --repeat
  std::map<std::string, std::string> point;  // swept keys and values
  std::vector<std::string> tags;
  // the case
  std::string op, dtype, intermediate, scale_at, model, layer, out_features, skew, order, ranks;
  std::int64_t tokens = 0, in_features = 0, slots = 0, active = 0, rank = 0;
  double no_adapter = 0;
  bool add_inputs = true, bias = false;
  std::int64_t seed = 0;
  std::string plugin;       // file and hash of a backend from outside
  std::string peer;         // package and version of what is no backend of ours
  std::string content;      // of the drawn step, see content_of
  std::string plan_limits;  // what the launch was captured for, see plan_limits_text
  std::string tuning;       // what backend `auto` was told, see tuning_text
  // op layer alone
  std::optional<std::string> layer_kind, comm, overlap;
  std::optional<std::int64_t> layer_count, tp, shard, comm_bytes;
  std::optional<bool> fully_sharded;
  std::optional<double> base_us, tax_us, tax_pct, tax_noise_us, tax_floor_us, tax_ratio;
  std::optional<double> comm_us, comm_h_us;
  // proof
  Status status = Status::kError;
  std::string message, warning, levels, hypothesis, numerics;
  std::string first_wrong;  // up to ten wrong elements, "; " between them
  std::optional<double> bound_share, rows_checked;
  // time, in us per launch
  std::optional<double> time_us, time_min_us, time_q1_us, time_q3_us, time_max_us, noise_us;
  std::optional<double> alone_us, alone_noise_us;               // of an op between others
  std::optional<double> plan_us;                                // beside time_us, in no total
  std::optional<double> zero_us, shrink_us, expand_us, gap_us;  // parts of a linear op
  std::vector<double> samples_us;
  std::string cache, mode;
  std::optional<std::int64_t> samples, samples_dropped, launches, rotation_sets, rotated_bytes;
  // metrics
  std::optional<double> floor_us, floor_ratio, stream_us, stream_ratio, touch_us;
  std::optional<double> tokens_per_s, bandwidth_GBps, compute_TFLOPps;
  std::optional<double> alone_ratio;
  std::optional<double> speedup;  // over the best peer, where there are peers
  std::string bound_by;
  std::int64_t bytes = 0, weight_bytes = 0, flops = 0;
  // counted by the GPU in one launch, with --counters
  std::optional<std::int64_t> dram_read_bytes, dram_written_bytes, sm_cycles;
  std::optional<double> l2_hit_rate;
  // conditions
  std::optional<double> clock_mhz, temperature_c, power_w, load, stolen_share, yardstick_us;
  std::string throttle, governor;
  std::optional<double> max_regression;  // of the scenario, for `compare`; 0.05 = 5 %
  // thresholds that this row missed, and those that the noise left open, "; " between them
  std::string threshold_missed, threshold_undecided;
  std::optional<double> wall_s;  // what the row cost, proof included
  std::string repro;
  // Sampling was cut short. No column, since such a row is shown but never stored.
  bool interrupted = false;
  std::string origin;    // see origin_of; no column either, since the context says it
  bool doubted = false;  // it was read from a file, and contradicts itself (see doubts.h)
};

// Fills floor_ratio, stream_ratio, alone_ratio, tokens_per_s, bandwidth_GBps and compute_TFLOPps
// from time_us, floor_us, stream_us, alone_us, tokens, bytes and flops: the formulas of the column
// registry, in one place.
void derive_metrics(Row& row);

// Whether the adapters' time is known, being above its noise; files of before have taxes below it.
[[nodiscard]] bool is_tax_known(const Row& row);

// Schema of the results files that are written. In files of schema 1 floor_us and floor_ratio are
// what stream_us and stream_ratio are since; reading renames them.
constexpr int kResultsSchema = 2;

// First line of every results file.
struct Context {
  int schema = kResultsSchema;  // of the file that it was read from
  std::string tool_version, commit, build, compiler, cuda_compiler;
  bool dirty = false;
  std::string device_kind, device_name, device_identity, driver, runtime;
  int compute_capability = 0, multiprocessors = 0;
  std::int64_t cache_bytes = 0, memory_bytes = 0;
  std::int64_t clock_mhz_max = 0;  // 0 = not known
  std::string host, cpu, started_utc;
  std::vector<std::string> argv;
  std::map<std::string, std::string> scenario_hash;  // scenario name -> hash
  std::int64_t seed = 0;
};

[[nodiscard]] bool same_device(const Context& left, const Context& right);

// The machine and the build that rows were measured with: times of two are not added up.
[[nodiscard]] std::string origin_of(const Context& context);

// What makes figures of two files not comparable, one sentence each: device, driver, runtime,
// tool version, build, seed, or another content of a scenario that both ran. Empty = the same.
[[nodiscard]] std::vector<std::string> context_differences(const Context& left,
                                                           const Context& right);

// What of a command line gives the rows another meaning: how they are proved and held to
// thresholds. Overrides and seeds are in the scenario's hash, and which rows are wanted may change.
[[nodiscard]] std::string asked_of_rows(const std::vector<std::string>& argv);

}  // namespace lora_bench
