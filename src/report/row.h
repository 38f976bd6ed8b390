#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"

namespace lora_bench {

// One result: case x backend x verdict x measurement x metrics. Every field but the last three is a
// column of report/columns.h; anything a sink prints can be made again from a stored row.
struct Row {
  // Which row it is.
  struct Identity {
    std::string scenario, case_id, backend;
    std::int64_t repetition = 0;               // of --repeat
    std::map<std::string, std::string> point;  // swept keys and values
    std::vector<std::string> tags;
    std::string plugin;  // file and hash of a backend from outside
    std::string peer;    // package and version of what is no backend of ours
  } id;

  // What is computed, and how it is launched.
  struct Step {
    std::string op, form, dtype, intermediate, scale_at, model, layer, out_features, skew, order,
        ranks;
    std::int64_t tokens = 0, in_features = 0, slots = 0, active = 0, rank = 0;
    double no_adapter = 0;
    bool add_inputs = true, bias = false;
    std::int64_t seed = 0;
    std::string semantics;  // what is asked beyond the plain op, see semantics_text
    std::string weights_dtype, weights_scale, activations_dtype, activations_scale;
    std::string content;      // of the drawn step, see content_of
    std::string plan_limits;  // what is asked of the plan, see plan_text
    std::string tuning;       // what backend `auto` was told, see tuning_text
    std::string cache, mode;  // what is cold when a launch begins, and how it is submitted
    std::int64_t bytes = 0, weight_bytes = 0, flops = 0;
    // Of a layer of experts alone, see facts_of_route.
    std::optional<std::string> part;
    std::optional<std::int64_t> experts, pairs, hits, experts_hit, most_rows_per_hit;
    std::optional<double> rows_per_hit, idle_pairs;
  } step;

  // Of op layer alone.
  struct Layer {
    std::optional<std::string> kind, comm, overlap;
    std::optional<std::int64_t> count, tp, shard, comm_bytes;
    std::optional<bool> fully_sharded;
    std::optional<double> comm_us, comm_h_us;
  } layer;

  // What the row comes to; `message` says why it is not PASSED, `warning` what makes its time
  // doubtful.
  Status status = Status::kError;
  std::string message, warning;

  struct Proof {
    std::string levels, hypothesis, numerics;
    std::string first_wrong;  // up to ten wrong elements, "; " between them
    std::optional<double> bound_share, rows_checked;
  } proof;

  // Of one launch, in us.
  struct Time {
    std::optional<double> us, min_us, q1_us, q3_us, max_us, noise_us;
    std::optional<double> alone_us, alone_noise_us;               // of an op between others
    std::optional<double> plan_us;                                // beside us, in no total
    std::optional<double> zero_us, shrink_us, expand_us, gap_us;  // parts of a linear op
    std::optional<double> touch_us;                               // of reading the operands alone
    std::optional<double> first_call_ms;  // of the host, in the first launch
    std::vector<double> samples_us;
    std::optional<std::int64_t> samples, samples_dropped, launches, rotation_sets, rotated_bytes;
  } time;

  // What the adapters add to a layer.
  struct Tax {
    std::optional<double> us, pct, noise_us, floor_us, ratio, base_us;
  } tax;

  // The least that this machine needs, and what the time is beside it.
  struct Floor {
    std::optional<double> us, ratio, stream_us, stream_ratio, alone_ratio;
    std::string bound_by;
  } floor;

  struct Rates {
    std::optional<double> tokens_per_s, bandwidth_GBps, compute_TFLOPps;
    std::optional<double> speedup;  // over the best peer, where there are peers
  } rates;

  // By the GPU in one launch, with --counters.
  struct Counted {
    std::optional<std::int64_t> dram_read_bytes, dram_written_bytes, sm_cycles;
    std::optional<double> l2_hit_rate;
  } counted;

  // Of the machine while time was taken.
  struct Conditions {
    std::optional<double> clock_mhz, temperature_c, power_w, load, stolen_share, yardstick_us;
    std::string throttle, governor;
  } conditions;

  struct Limits {
    std::optional<double> max_regression;  // of the scenario, for `compare`; 0.05 = 5 %
    std::string missed, undecided;         // thresholds, "; " between them; of these by its noise
  } limits;

  std::optional<double> wall_s;  // what the row cost, proof included
  std::string repro;
  // Sampling was cut short. No column, since such a row is shown but never stored.
  bool interrupted = false;
  std::string origin;    // see origin_of; no column either, since the context says it
  bool doubted = false;  // it was read from a file, and contradicts itself (see doubts.h)
};

// Fills the ratios of floor and tax, and the rates but for speedup, from time, floor, tax and step:
// the formulas of the column registry, in one place.
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
