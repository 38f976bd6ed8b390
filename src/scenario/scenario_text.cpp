#include "scenario/scenario_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace lora_bench {
namespace {

bool same(const SkewLaw& left, const SkewLaw& right) {
  return left.kind == right.kind && left.parameter == right.parameter &&
         left.trace_file == right.trace_file;
}

std::string text_of(const SkewLaw& law) {
  switch (law.kind) {
    case Skew::kZipf:
    case Skew::kHot:
      return fmt::format("{{{}: {}}}", name(law.kind), law.parameter);
    case Skew::kTrace:
      return fmt::format("{{trace: {}}}", law.trace_file);
    default:
      return std::string(name(law.kind));
  }
}

std::string text_of(const RankLaw& law) {
  if (law.shares.empty()) {
    return fmt::format("[{}]", fmt::join(law.list, ", "));
  }
  std::string text;
  for (const auto& [rank, share] : law.shares) {
    text += fmt::format("{}{}: {}", text.empty() ? "{" : ", ", rank, share);
  }
  return text + "}";
}

// The entries of one map in the order of the schema, those that say something alone.
class Entries {
 public:
  template <typename Value>
  Entries& add(const char* key, const Value& value) {
    text_ += fmt::format("{}{}: {}", text_.empty() ? "" : ", ", key, value);
    return *this;
  }
  template <typename Value>
  Entries& unless(const Value& plain, const char* key, const Value& value) {
    return value == plain ? *this : add(key, value);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string layer_text(const LayerShape& layer) {
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), layer.offset_start);
  return Entries()
      .add("in", layer.in_features)
      .add("out", fmt::format("[{}]", fmt::join(layer.widths, ", ")))
      .unless<std::int64_t>(0, "offset_start", layer.offset_start)
      .unless(layer.in_features, "x_stride", layer.x_stride)
      .unless(columns, "y_stride", layer.y_stride)
      .text();
}

std::string adapters_text(const AdapterSpec& adapters) {
  return Entries()
      .add("slots", adapters.slots)
      .unless<std::int64_t>(0, "active", adapters.active)
      .add("rank", text_of(adapters.rank))
      .add("max_rank", adapters.max_rank)
      .unless(std::string("[1]"), "scale", fmt::format("[{}]", fmt::join(adapters.scale, ", ")))
      .unless(false, "bias", adapters.bias)
      .text();
}

std::string batch_text(const BatchSpec& batch) {
  Entries entries;
  entries.add("decode", batch.decode);
  if (!batch.prefill.empty()) {
    entries.add("prefill", fmt::format("[{}]", fmt::join(batch.prefill, ", ")));
  }
  return entries.text();
}

std::string verify_text(const VerifySettings& verify) {
  const VerifySettings plain;
  return Entries()
      .unless(plain.enabled, "enabled", verify.enabled)
      .unless(plain.relations, "relations", verify.relations)
      .unless(plain.max_rows, "max_rows", verify.max_rows)
      .unless(plain.timeout_s, "timeout_s", verify.timeout_s)
      .text();
}

}  // namespace

std::string tuning_text(const Tuning& tuning) {
  const Tuning plain;
  return Entries()
      .unless(name(plain.family), "family", name(tuning.family))
      .unless(plain.cluster, "cluster", tuning.cluster)
      .unless(plain.groups, "groups", tuning.groups)
      .unless(plain.warps, "warps", tuning.warps)
      .unless(plain.slots, "slots", tuning.slots)
      .unless(plain.blocks, "blocks", tuning.blocks)
      .unless(plain.shrink_tile, "shrink_tile", tuning.shrink_tile)
      .unless(plain.split, "split", tuning.split)
      .unless(plain.parts, "parts", tuning.parts)
      .unless(plain.expand_tile, "expand_tile", tuning.expand_tile)
      .unless(plain.chunks, "chunks", tuning.chunks)
      .text();
}

std::string plan_limits_text(const PlanLimits& limits) {
  const PlanLimits plain;
  return Entries()
      .unless(plain.max_tokens, "max_tokens", limits.max_tokens)
      .unless(plain.max_slots, "max_slots", limits.max_slots)
      .text();
}

std::string scenario_text(const Case& spec) {
  const Case plain;
  std::string text = fmt::format("name: {}\n", spec.scenario);
  const auto line = [&](bool needed, const char* key, std::string_view value) {
    text += needed ? fmt::format("{}: {}\n", key, value) : "";
  };
  line(true, "op", name(spec.op));
  line(true, "dtype", name(spec.dtype));
  line(spec.intermediate != plain.intermediate, "intermediate", name(spec.intermediate));
  line(spec.scale_at != plain.scale_at, "scale_at", name(spec.scale_at));
  line(!spec.add_inputs, "add_inputs", "false");
  if (spec.layer.model.empty()) {
    line(true, "layer", "{" + layer_text(spec.layer) + "}");
  } else {
    line(true, "model", spec.layer.model);
    line(true, "layers", spec.layer.name);
  }
  line(true, "batch", "{" + batch_text(spec.batch) + "}");
  line(true, "adapters", "{" + adapters_text(spec.adapters) + "}");
  line(true, "skew", text_of(spec.skew));
  line(!same(spec.skew, spec.prefill_skew), "prefill_skew", text_of(spec.prefill_skew));
  line(spec.no_adapter != 0, "no_adapter", fmt::format("{}", spec.no_adapter));
  line(true, "order", name(spec.order));
  line(true, "seed", std::to_string(spec.seed));
  const std::string plan = plan_limits_text(spec.plan);
  line(!plan.empty(), "plan", "{" + plan + "}");
  const std::string tuning = tuning_text(spec.tuning);
  line(!tuning.empty(), "tuning", "{" + tuning + "}");
  const std::string verify = verify_text(spec.verify);
  line(!verify.empty(), "verify", "{" + verify + "}");
  line(!spec.measure.enabled, "measure", "false");
  line(!spec.backends.empty(), "backends", fmt::format("[{}]", fmt::join(spec.backends, ", ")));
  return text;
}

}  // namespace lora_bench
