#include "run/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/bytes.h"
#include "core/units.h"
#include "measure/ceilings.h"
#include "measure/layer_time.h"
#include "measure/metadata_time.h"
#include "measure/quantise_time.h"
#include "report/columns.h"
#include "workload/semantics.h"

namespace lora_bench {
namespace {

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
  std::vector<std::int64_t> ranks = problem.own_rank.empty() ? problem.rank : problem.own_rank;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return fmt::format(
      "{}{}", fmt::join(ranks, ","),
      problem.own_rank.empty() ? "" : fmt::format(" in {} lanes of zeros", problem.max_rank));
}

Dtype dtype_of_weights(const Case& spec) {
  return spec.weights.dtype.value_or(spec.adapters.dtype.value_or(spec.dtype));
}

// Of op expand h is the activations.
Dtype dtype_of_h(const Case& spec) {
  return spec.op == Op::kExpand ? spec.activations.dtype.value_or(spec.intermediate)
                                : spec.intermediate;
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
  const bool metadata = spec.op == Op::kMetadata;
  const bool products = has_products(spec.op);
  const bool adapters = has_adapters(spec.op);
  const auto of_products = [products](std::string_view text) {
    return Cell{std::string(products ? text : "")};
  };
  const auto of_x = [metadata](std::string_view text) {
    return Cell{std::string(metadata ? "" : text)};
  };
  std::vector<std::pair<std::string_view, Cell>> said{
      {"scenario", spec.scenario},
      {"case", spec.id},
      {"backend", backend},
      {"point", spec.point},
      {"tags", spec.tags},
      {"op", word(name(spec.op))},
      {"form", word(metadata ? name(spec.metadata.form) : "")},
      {"dtype", of_x(name(spec.dtype))},
      {"intermediate", of_products(name(dtype_of_h(spec)))},
      {"scale_at", of_products(name(spec.scale_at))},
      {"weights_dtype", of_products(name(dtype_of_weights(spec)))},
      {"weights_scale", of_products(spec.weights.dtype ? name(spec.weights.scale) : "")},
      {"activations_dtype", of_x(name(spec.activations.dtype.value_or(spec.dtype)))},
      {"activations_scale", of_x(spec.activations.dtype ? name(spec.activations.scale) : "")},
      {"model", spec.layer.model},
      {"layer", spec.layer.name},
      {"out_features", fmt::format("{}", fmt::join(spec.layer.widths, "+"))},
      {"skew", adapters ? skew_text(spec) : ""},
      {"order", word(adapters ? name(spec.order) : "")},
      {"slots", adapters ? spec.adapters.slots : 0},
      {"no_adapter", spec.no_adapter},
      {"add_inputs", products && spec.add_inputs},
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
    said.emplace_back("rank", adapters ? largest_rank(spec.adapters.rank) : 0);
  }
  return said;
}

}  // namespace

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

namespace {

// Of a layer also of what it is to its shards.
std::string content_of_step(const CaseStep& step, Comm comm) {
  std::string content = content_of(step.op);
  const auto add = [&](const std::string& more) {
    content = sha256(fmt::format("{}|{}", content, more)).substr(0, 16);
  };
  if (step.metadata) {
    const MetadataProblem& problem = step.metadata->problem;
    add(fmt::format("{}|{}|{}|{}|{}|{}|{}", name(problem.form), problem.samples, problem.requests,
                    problem.vocabulary, problem.extra_vocabulary, problem.chunk,
                    problem.idle_segments));
  }
  if (step.quantise) {
    const QuantiseProblem& problem = step.quantise->problem;
    add(fmt::format("{}|{}|{}|{}|{}", name(problem.from), problem.stride, name(problem.to),
                    problem.scales.columns, quantiser_text(problem)));
  }
  if (!step.layer) {
    return content;
  }
  const LayerProblem& problem = *step.layer;
  const ShardedLayer& layer = problem.layer;
  add(fmt::format("{}|{}|{}|{}|{}|{}|{}|{}", name(layer.kind), layer.tp, layer.fully_sharded,
                  layer.kv_heads, problem.base_bias, problem.missing_slices, layer.gather_output,
                  layer.input_split));
  if (problem.skip_bias_add || layer.kind == LayerKind::kLogits) {
    add(fmt::format("{}|{}|{}|{}", problem.skip_bias_add, layer.padding_unit, problem.soft_cap,
                    problem.logit_scale));
  }
  if (layer.extra > 0) {
    add(fmt::format("extra {}", layer.extra));
  }
  if (!problem.packed.empty()) {
    add(fmt::format("packed {}", fmt::join(problem.packed, ",")));
  }
  if (!problem.missing.empty()) {
    add(fmt::format("missing {}", fmt::join(problem.missing, "; ")));
  }
  if (layer.gather_to != GatherTo::kAll) {
    add(fmt::format("gathered to {}", name(layer.gather_to)));
  }
  if (!layer.reduce_results) {
    add("terms kept");
  }
  if (comm != Comm::kNone) {
    add(std::string(name(comm)));
  }
  return content;
}

// Of a layer that of the first shard, which has no less to do than the others.
Work work_of_step(const CaseStep& step) {
  if (step.metadata) {
    return count_metadata_work(*step.metadata);
  }
  if (step.quantise) {
    return count_quantise_work(step.quantise->problem);
  }
  return step.layer ? count_layer_work(shard_problem(*step.layer, 0)).layer : count_work(step.op);
}

void describe_route(const Case& spec, const RouteFacts& facts, Row::Step& drawn) {
  drawn.tokens = facts.tokens;
  drawn.slots = facts.adapters;
  drawn.active = facts.active_adapters;
  drawn.part = name(spec.experts.part);
  drawn.experts = spec.experts.count;
  drawn.pairs = facts.pairs;
  drawn.hits = facts.hits;
  drawn.experts_hit = facts.experts_hit;
  drawn.rows_per_hit = facts.rows_per_hit;
  drawn.most_rows_per_hit = facts.most_rows_per_hit;
  drawn.idle_pairs = facts.idle_pairs_share;
}

}  // namespace

Row describe_case(const Case& spec, const CaseStep& step, const std::string& backend) {
  const Problem& problem = step.op;
  Row row = describe_spec(spec, backend);
  Row::Step& drawn = row.step;
  drawn.tokens = problem.tokens;
  drawn.in_features = problem.in_features;
  if (has_adapters(spec.op)) {
    drawn.ranks = ranks_text(problem);
    drawn.slots = problem.slots;
    drawn.active = problem.plan.active();
    drawn.rank =
        problem.rank.empty() ? 0 : *std::max_element(problem.rank.begin(), problem.rank.end());
  }
  if (const std::optional<RouteFacts> facts = facts_of_route(problem)) {
    describe_route(spec, *facts, drawn);
  }
  drawn.semantics =
      step.quantise ? quantiser_text(step.quantise->problem) : semantics_text(problem);
  drawn.content = content_of_step(step, spec.setup.comm);
  PlanSpec plan = spec.plan;
  if (backend != "auto" && backend != "panel") {
    plan.max_slots = 0;  // others launch for the batch
  }
  drawn.plan_limits = plan_text(plan);
  drawn.tuning = backend == "auto" ? tuning_text(problem.tuning) : "";
  const Work work = work_of_step(step);
  drawn.bytes = work.bytes;
  drawn.weight_bytes = work.weight_bytes;
  drawn.flops = work.flops;
  if (step.layer) {
    const ShardedLayer& layer = step.layer->layer;
    row.layer.kind = name(layer.kind);
    row.layer.tp = layer.tp;
    row.layer.fully_sharded = layer.fully_sharded;
    row.layer.comm = name(spec.setup.comm);
    const ExchangedBytes sent = exchanged_bytes(*step.layer);
    row.layer.comm_bytes = sent.h + sent.y;
  }
  return row;
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
