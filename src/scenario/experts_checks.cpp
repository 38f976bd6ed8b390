#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "scenario/checks.h"

namespace lora_bench {
namespace {

// A field whose usual value alone goes with experts, and which that is.
struct Unmixed {
  const char* path;
  const char* allowed;
};
constexpr Unmixed kNotWithExperts[] = {
    {"weights.dtype", "weights of 16 or 32 bits"},
    {"activations.dtype", "an x of 16 or 32 bits"},
    {"adapters.bias", "false"},
    {"inputs", "shared"},
    {"adapters.placing", "separate"},
    {"adapters.padding", "unread"},
    {"plan.form", "sorted"},
    {"plan.made_on", "host"},
    {"shrink_adds", "false"},
};

// What lists the experts of rows, and multiplies nothing.
bool lists_experts(const Case& spec) {
  return spec.op == Op::kMetadata && spec.metadata.form == Form::kAlign;
}

std::int64_t tokens_of(const Case& spec) {
  return std::max(
      std::accumulate(spec.batch.prefill.begin(), spec.batch.prefill.end(), spec.batch.decode),
      spec.plan.max_tokens);
}

void check_op_of_experts(const Case& spec, const CaseChecker& checker) {
  if (spec.op == Op::kMetadata && !lists_experts(spec)) {
    checker.fail("form", {"experts.count"},
                 fmt::format("form {} with experts", name(spec.metadata.form)), "form align");
  } else if (spec.op != Op::kLinear && spec.op != Op::kShrink && spec.op != Op::kExpand &&
             !lists_experts(spec)) {
    checker.fail("op", {"experts.count", "layers", "model"},
                 fmt::format("op {} with experts", name(spec.op)),
                 "op linear, shrink or expand, or op metadata in form align");
  }
  for (const Unmixed& row : kNotWithExperts) {
    const Field& field = *find_field(fields(), row.path);
    if (field.is_said(spec)) {
      checker.fail(row.path, {"experts.count", "layers"},
                   fmt::format("'{}' is {} with experts", row.path, field.text(spec)), row.allowed);
    }
  }
}

void check_sizes(const Case& spec, const CaseChecker& checker) {
  const ExpertsSpec& experts = spec.experts;
  if (experts.top_k > experts.count) {
    checker.fail("experts.top_k", {"experts.count", "layers"},
                 fmt::format("'experts.top_k' is {} of {} experts", experts.top_k, experts.count),
                 "at most experts.count");
  }
  if (experts.count > kMaxSlots / spec.adapters.slots) {
    checker.fail("experts.count", {"adapters.slots", "layers"},
                 fmt::format("{} experts of {} slots", experts.count, spec.adapters.slots),
                 fmt::format("at most {} of an expert and a slot", kMaxSlots));
  }
  const std::int64_t tokens = tokens_of(spec);
  if (tokens > kMaxTokens / experts.top_k) {
    checker.fail("experts.top_k", {"batch.prefill", "batch.decode", "plan.max_tokens", "layers"},
                 fmt::format("{} tokens of {} experts each", tokens, experts.top_k),
                 fmt::format("at most {} of a token and an expert", kMaxTokens));
  }
}

// Each slot has a list with room for all pairs of rows and experts.
void check_lists(const Case& spec, const CaseChecker& checker) {
  constexpr std::int64_t kMostEntries = std::int64_t{1} << 26;
  const std::int64_t pairs = tokens_of(spec) * spec.experts.top_k;
  const std::int64_t most = pairs + spec.experts.count * spec.metadata.block;
  if (most > kMostEntries / spec.adapters.slots) {
    checker.fail("form", {"batch.prefill", "batch.decode", "plan.max_tokens", "adapters.slots"},
                 fmt::format("{} slots with a list of {} pairs each", spec.adapters.slots, pairs),
                 fmt::format("at most {} entries of all lists, padding included", kMostEntries));
  }
}

void check_groups(const Case& spec, const CaseChecker& checker) {
  const RoutingLaw& law = spec.routing;
  const auto complain = [&](const std::string& what, const std::string& allowed) {
    checker.fail(kRouting, {"experts.count", "experts.top_k", "layers"}, what, allowed);
  };
  if (spec.experts.count % law.groups != 0) {
    complain(fmt::format("{} groups of {} experts", law.groups, spec.experts.count),
             "groups of equally many experts");
    return;
  }
  const std::int64_t reached = law.groups_per_token * (spec.experts.count / law.groups);
  if (law.groups_per_token > law.groups || reached < spec.experts.top_k) {
    complain(fmt::format("{} of {} groups, of {} experts each, with top_k {}", law.groups_per_token,
                         law.groups, spec.experts.count / law.groups, spec.experts.top_k),
             "groups_per_token of at most groups, with at least top_k experts");
  }
}

void check_trace(const Case& spec, const CaseChecker& checker, FieldContext& context) {
  if (checker.is_broken("experts.count") || checker.is_broken("experts.top_k")) {
    return;
  }
  const RoutingTraceFile& file = context.routing_traces.read(
      spec.routing.trace_file, context.folder, {}, checker.diagnostics());
  for (std::size_t i = 0; i < file.tokens.size(); ++i) {
    const std::vector<std::int32_t>& experts = file.tokens[i].experts;
    if (static_cast<std::int64_t>(experts.size()) != spec.experts.top_k) {
      checker.diagnostics().add(file.places[i],
                                fmt::format("{} expert{} a token with top_k {}", experts.size(),
                                            experts.size() == 1 ? "" : "s", spec.experts.top_k),
                                "as many columns e0, e1 and so on as experts.top_k");
      return;  // all lines have as many
    }
    const std::int32_t last = *std::max_element(experts.begin(), experts.end());
    if (last >= spec.experts.count) {
      checker.diagnostics().add(file.places[i],
                                fmt::format("expert {} of {}", last, spec.experts.count),
                                fmt::format("-1 to {}", spec.experts.count - 1));
    }
  }
}

void check_routing(const Case& spec, const CaseChecker& checker, FieldContext& context) {
  const RoutingLaw& law = spec.routing;
  if (law.kind == Routing::kHot && law.hot > spec.experts.count) {
    checker.fail(kRouting, {"experts.count", "layers"},
                 fmt::format("{} hot ones of {} experts", law.hot, spec.experts.count),
                 "at most experts.count");
  }
  if (law.kind == Routing::kGrouped) {
    check_groups(spec, checker);
  }
  if (law.kind == Routing::kTrace) {
    check_trace(spec, checker, context);
  }
}

}  // namespace

void check_experts(const Case& spec, const CaseChecker& checker, FieldContext& context) {
  if (spec.experts.any()) {
    check_op_of_experts(spec, checker);
    check_sizes(spec, checker);
    if (lists_experts(spec)) {
      check_lists(spec, checker);
    }
    check_routing(spec, checker, context);
  } else if (lists_experts(spec)) {
    checker.fail("form", {"op"}, "form align without experts", "experts.count, or another form");
  }
}

}  // namespace lora_bench
