#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "scenario/case.h"
#include "scenario/scenario.h"
#include "scenario/schema.h"

namespace lora_bench {

namespace {

std::string group_of(const std::string& path) { return path.substr(0, path.find('.')); }

bool is_said(const Field& field, const Case& spec) {
  return why_no_field(field, spec.op).empty() && field.is_said(spec);
}

// The fields of one group that the case says, as entries of a map.
std::string entries_of(const Case& spec, const std::string& group) {
  std::string text;
  for (const Field& field : fields()) {
    if (field.text && group_of(field.doc.path) == group && is_said(field, spec)) {
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", last_part(field.doc.path),
                          field.text(spec));
    }
  }
  return text;
}

}  // namespace

std::string tuning_text(const Tuning& tuning) {
  std::string text;
  for (const KnobValue& said : tuning) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", said.knob, said.value);
  }
  return text;
}

std::string plan_text(const PlanSpec& plan) {
  Case spec;
  spec.plan = plan;
  return entries_of(spec, "plan");
}

std::string scenario_text(const Case& spec) {
  std::string text = fmt::format("name: {}\n", spec.scenario);
  std::string written;  // the group that is written whole
  for (const Field& field : fields()) {
    const std::string& path = field.doc.path;
    const std::string group = group_of(path);
    if (!field.text || !is_said(field, spec) || (group != path && group == written)) {
      continue;
    }
    if (group == path) {
      text += fmt::format("{}: {}\n", path, field.text(spec));
      continue;
    }
    written = group;
    const std::string entries = entries_of(spec, group);
    text += entries == "enabled: false" ? group + ": false\n"
                                        : fmt::format("{}: {{{}}}\n", group, entries);
  }
  return text;
}

namespace {

// What a router said, a token behind the other; "" without a trace.
std::string routing_trace_text(const RoutingLaw& law) {
  std::string text;
  for (const RoutedToken& token : law.trace) {
    text += fmt::format("{}:{};", fmt::join(token.experts, ","), fmt::join(token.weights, ","));
  }
  return text;
}

// Everything that changes what is run or how it is judged, and nothing else: not tags, not where
// the file lies. A field that is added later changes nothing where it is not said.
std::string hashed_text(const Case& spec) {
  return fmt::format("{}|{}|{}|{}{}\n", spec.id, scenario_text(spec),
                     fmt::join(spec.skew.trace, ","), fmt::join(spec.prefill_skew.trace, ","),
                     routing_trace_text(spec.routing));
}

}  // namespace

std::uint64_t content_hash(const std::vector<Case>& cases) {
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const Case& spec : cases) {
    for (const char c : hashed_text(spec)) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    }
  }
  return hash;
}

std::int64_t columns_of(const LayerShape& layer) {
  return std::accumulate(layer.widths.begin(), layer.widths.end(), layer.offset_start);
}

std::int64_t largest_rank(const RankLaw& law) {
  std::int64_t largest = 0;
  for (const std::int64_t rank : law.list) {
    largest = std::max(largest, rank);
  }
  for (const auto& [rank, share] : law.shares) {
    largest = std::max(largest, rank);
  }
  return largest;
}

bool reaches_all_slots(const SkewLaw& law) {
  return law.kind != Skew::kIdentical && law.kind != Skew::kOneVsRest;
}

bool has_base(Op op) { return op == Op::kLayer; }

bool has_shrink(Op op) { return op != Op::kExpand && op != Op::kEmbedding && has_products(op); }

bool has_expand(Op op) { return op != Op::kShrink && has_products(op); }

}  // namespace lora_bench
