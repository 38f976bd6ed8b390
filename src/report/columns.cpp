#include "report/columns.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "report/column_of_field.h"

namespace lora_bench {
namespace {

std::vector<Column> identity_columns() {
  return {
      column({"scenario", "scenario", "", "name of the scenario", ""}, &Row::Identity::scenario),
      column({"case", "case", "", "id of the case, unique in its scenario, stable across runs", ""},
             &Row::Identity::case_id, {true, 0}),
      column({"backend", "backend", "", "implementation that ran", ""}, &Row::Identity::backend,
             {true, 0}),
      column({"plugin", "plugin", "",
              "file of a backend from outside and the hash of its content; empty for built-in ones",
              ""},
             &Row::Identity::plugin),
      column({"peer", "peer", "", "what a peer was in rows of earlier versions; empty for backends",
              ""},
             &Row::Identity::peer),
      column({"repetition", "repetition", "", "which repeat of --repeat, from 0", ""},
             &Row::Identity::repetition),
      column({"point", "point", "", "swept keys of the scenario with their values", ""},
             &Row::Identity::point),
      column({"tags", "tags", "", "tags of the scenario", ""}, &Row::Identity::tags),
      status_column(),
  };
}

std::vector<Column> case_columns() {
  return {
      column({"op", "op", "",
              "shrink, expand, linear, embedding, logits, layer, metadata or quantise", ""},
             &Row::Step::op),
      column({"form", "form", "", "arrays that op metadata makes; empty for other ops", ""},
             &Row::Step::form),
      column({"dtype", "dtype", "", "type of x, A, B, bias and y", ""}, &Row::Step::dtype),
      column({"intermediate", "h dtype", "",
              "type of h between shrink and expand, or of the h that an op is given", ""},
             &Row::Step::intermediate),
      column({"scale_at", "scale at", "", "which half applies the scale: shrink or expand", ""},
             &Row::Step::scale_at),
      column(
          {"model", "model", "", "model whose layer has this shape; empty for a custom shape", ""},
          &Row::Step::model),
      column({"layer", "layer", "", "name of the projection", ""}, &Row::Step::layer),
      column({"in_features", "K", "", "columns of x (K)", ""}, &Row::Step::in_features),
      column({"out_features", "N", "", "widths of the slices (N_i), joined by '+'", ""},
             &Row::Step::out_features),
      column({"tokens", "tokens", "",
              "tokens of the step (M): rows of x, but for experts in part w2", ""},
             &Row::Step::tokens, {true, 5}),
      column({"slots", "slots", "", "adapters resident", ""}, &Row::Step::slots),
      column({"active", "active", "", "distinct adapters that the batch touches", ""},
             &Row::Step::active, {true, 6}),
      column({"rank", "rank", "", "largest rank among the slots", ""}, &Row::Step::rank, {true, 5}),
      column({"ranks", "ranks", "", "the rank law as written in the scenario", ""},
             &Row::Step::ranks),
      column({"skew", "skew", "", "law that binds sequences to adapters", ""}, &Row::Step::skew),
      column({"order", "order", "", "order of the sequences in the step", ""}, &Row::Step::order),
      column({"no_adapter", "no adapter", "1", "share of sequences without an adapter", ""},
             &Row::Step::no_adapter),
      column({"add_inputs", "adds", "", "true: y += delta; false: y = delta", ""},
             &Row::Step::add_inputs),
      column({"bias", "bias", "", "adapters have a bias", ""}, &Row::Step::bias),
      column({"weights_dtype", "A, B dtype", "",
              "type of A and B: of eight bits, that of the adapters, or that of x and y", ""},
             &Row::Step::weights_dtype),
      column({"weights_scale", "scales", "",
              "of weights of eight bits, what has a scale: tensor, channel or block; empty: other "
              "weights have none",
              ""},
             &Row::Step::weights_scale),
      column(
          {"activations_dtype", "x dtype", "",
           "type of x: of eight bits, or that of y; of op expand, which has no x, that of an h of "
           "eight bits, or that of y; of embedding that of y",
           ""},
          &Row::Step::activations_dtype),
      column({"activations_scale", "x scales", "",
              "of an x, or in op expand an h, of eight bits, what has a scale: tensor, token or "
              "block; empty: others have none",
              ""},
             &Row::Step::activations_scale),
      column({"semantics", "semantics", "",
              "what is asked beyond the plain op, as a scenario says it; empty: nothing", ""},
             &Row::Step::semantics),
  };
}

std::vector<Column> experts_columns() {
  return {
      column({"experts_part", "part", "",
              "of a layer of experts, the product: w13, to gate and up, or w2, to the output", ""},
             &Row::Step::part),
      column({"experts", "experts", "", "experts of the layer", ""}, &Row::Step::experts),
      column({"pairs", "pairs", "",
              "rows of a layer of experts: a token and an expert that it chose", ""},
             &Row::Step::pairs),
      column({"hits", "hits", "",
              "distinct adapters with an expert that some pair needs: weights that are read", ""},
             &Row::Step::hits),
      column({"experts_hit", "experts hit", "", "distinct experts among the hits", ""},
             &Row::Step::experts_hit),
      column({"rows_per_hit", "rows/hit", "1", "pairs of a hit, on average", ""},
             &Row::Step::rows_per_hit),
      column({"most_rows_per_hit", "most rows/hit", "", "pairs of the hit that has the most", ""},
             &Row::Step::most_rows_per_hit),
      column({"idle_pairs", "idle pairs", "1", "share of the pairs that no adapter acts on", ""},
             &Row::Step::idle_pairs),
  };
}

// What was drawn, and how it is launched.
std::vector<Column> step_columns() {
  return {
      column({"seed", "seed", "", "seed of batch, adapters and tensors", ""}, &Row::Step::seed),
      column({"content", "content", "",
              "hash of the drawn step: sizes, ranks, adapter of each token", ""},
             &Row::Step::content),
      column({"plan_limits", "plan limits", "",
              "what is asked of the plan, as in the scenario; empty: sorted, by the host, for the "
              "batch",
              ""},
             &Row::Step::plan_limits),
      column({"tuning", "tuning", "",
              "what backend auto was told to launch; empty where it chose by itself", ""},
             &Row::Step::tuning),
  };
}

std::vector<Column> proof_columns() {
  return {
      column({"message", "message", "", "why a row is not PASSED, one line", ""}, &Row::message),
      column({"warning", "warning", "",
              "what makes the time doubtful: throttled, noisy, interrupted", ""},
             &Row::warning),
      column({"levels", "levels", "", "levels of proof that were run and held", ""},
             &Row::Proof::levels),
      column({"first_wrong", "first wrong", "",
              "up to ten wrong elements: token, adapter, slice, column, expected, got, bound", ""},
             &Row::Proof::first_wrong),
      column({"hypothesis", "hypothesis", "", "key of the fault that fits a wrong result", ""},
             &Row::Proof::hypothesis),
      column({"numerics", "numerics", "", "arithmetic that the backend declared", ""},
             &Row::Proof::numerics),
      column({"bound_share", "of bound", "1", "worst share of the error bound that was used",
              "max over elements of |got - expected| / bound"},
             &Row::Proof::bound_share),
      column({"rows_checked", "checked", "1", "share of rows compared in full",
              "rows compared / rows of the output"},
             &Row::Proof::rows_checked),
  };
}

std::vector<Column> condition_columns() {
  return {
      column({"clock_mhz", "MHz", "MHz",
              "SM clock of a GPU, median over its samples; frequency of a CPU after them", ""},
             &Row::Conditions::clock_mhz),
      column({"temperature_c", "deg C", "degC", "temperature of the device", ""},
             &Row::Conditions::temperature_c),
      column({"power_w", "W", "W", "power drawn by the device", ""}, &Row::Conditions::power_w),
      column({"load", "load", "1", "load average of the last minute per core (CPU)", ""},
             &Row::Conditions::load),
      column({"stolen_share", "stolen", "1",
              "of the CPU time that sampling wanted, the share that others had (CPU)",
              "(waited + stolen) / (ran + waited + stolen)"},
             &Row::Conditions::stolen_share),
      column({"yardstick_us", "yardstick us", "us",
              "a fixed piece of work before and after sampling: what the machine could do (CPU)",
              "mean of both"},
             &Row::Conditions::yardstick_us),
      column({"throttle", "throttle", "", "reasons the device gave for a lower clock", ""},
             &Row::Conditions::throttle),
      column({"governor", "governor", "", "frequency governor (CPU)", ""},
             &Row::Conditions::governor),
      column({"max_regression", "max regression", "1",
              "slowdown above which compare fails this row; empty = its default", ""},
             &Row::Limits::max_regression),
      column(
          {"threshold_missed", "missed", "", "thresholds of the scenario that the row missed", ""},
          &Row::Limits::missed),
      column({"threshold_undecided", "undecided", "",
              "thresholds that the row exceeds by less than its noise", ""},
             &Row::Limits::undecided),
      column({"wall_s", "wall s", "s", "what the row cost, proof included", ""}, &Row::wall_s),
      column({"repro", "repro", "", "command that runs this row alone", ""}, &Row::repro),
  };
}

constexpr std::array<std::string_view, 52> kBeforeRun{"scenario",
                                                      "case",
                                                      "backend",
                                                      "point",
                                                      "tags",
                                                      "op",
                                                      "dtype",
                                                      "intermediate",
                                                      "scale_at",
                                                      "model",
                                                      "layer",
                                                      "in_features",
                                                      "out_features",
                                                      "tokens",
                                                      "slots",
                                                      "active",
                                                      "rank",
                                                      "ranks",
                                                      "skew",
                                                      "order",
                                                      "no_adapter",
                                                      "add_inputs",
                                                      "bias",
                                                      "seed",
                                                      "cache",
                                                      "mode",
                                                      "bytes",
                                                      "weight_bytes",
                                                      "flops",
                                                      "content",
                                                      "plan_limits",
                                                      "tuning",
                                                      "layer_kind",
                                                      "tp",
                                                      "fully_sharded",
                                                      "comm",
                                                      "layer_count",
                                                      "comm_bytes",
                                                      "form",
                                                      "semantics",
                                                      "weights_dtype",
                                                      "weights_scale",
                                                      "activations_dtype",
                                                      "activations_scale",
                                                      "experts_part",
                                                      "experts",
                                                      "pairs",
                                                      "hits",
                                                      "experts_hit",
                                                      "rows_per_hit",
                                                      "most_rows_per_hit",
                                                      "idle_pairs"};
std::vector<Column> all_columns() {
  std::vector<Column> all;
  for (auto* part :
       {&identity_columns, &case_columns, &experts_columns, &step_columns, &time_columns,
        &layer_columns, &metric_columns, &counter_columns, &proof_columns, &condition_columns}) {
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
  const auto swept = row.id.point.find(std::string(key));
  return swept == row.id.point.end() ? Cell{} : Cell{swept->second};
}

}  // namespace lora_bench
