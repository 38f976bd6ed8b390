#include "scenario/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace lora_bench {

namespace {

// How many adapters the law can touch with so many sequences.
std::int64_t reach(const SkewLaw& law, std::int64_t slots) {
  switch (law.kind) {
    case Skew::kIdentical:
      return 1;
    case Skew::kOneVsRest:
      return std::min<std::int64_t>(2, slots);
    default:
      return slots;
  }
}

void check_layer(const Case& spec, const CaseChecker& checker) {
  const LayerShape& layer = spec.layer;
  const auto slices = static_cast<std::int64_t>(layer.widths.size());
  if (has_products(spec.op) && (slices == 0 || slices > kMaxSlices)) {
    checker.fail("layer.out", {}, fmt::format("'layer.out' has {} widths", slices),
                 "1 to 64 integers from 0 to 16777216");
  }
  if (spec.op == Op::kLogits && slices > 1) {
    checker.fail("op", {"layers", "layer.out"}, fmt::format("op logits with {} slices", slices),
                 "one slice");
  }
  if (layer.x_stride < extent_of_x(layer)) {
    checker.fail("layer.x_stride", {"layer.in", "layer.x_column_stride"},
                 fmt::format("'layer.x_stride' is {}, but a row of x has {} elements",
                             layer.x_stride, extent_of_x(layer)),
                 "0, or at least what a row takes");
  }
  const std::int64_t columns =
      std::accumulate(layer.widths.begin(), layer.widths.end(), layer.offset_start);
  if (layer.y_stride < columns) {
    checker.fail("layer.y_stride", {"layer.out", "layer.offset_start"},
                 fmt::format("'layer.y_stride' is {}, but the slices end at column {}",
                             layer.y_stride, columns),
                 "0, or at least the columns of y");
  }
}

void check_bias(const Case& spec, const CaseChecker& checker) {
  const AdapterSpec& adapters = spec.adapters;
  const auto slices = static_cast<std::int64_t>(spec.layer.widths.size());
  const std::vector<std::int64_t>& some = adapters.bias_slices;
  if (!adapters.bias && (!some.empty() || adapters.rank0_bias)) {
    checker.fail(some.empty() ? "adapters.rank0_bias" : "adapters.bias_slices", {"adapters.bias"},
                 "there is no bias", "adapters.bias: true");
  }
  if (std::adjacent_find(some.begin(), some.end(), std::greater_equal<>()) != some.end() ||
      (!some.empty() && some.back() >= slices)) {
    checker.fail(
        "adapters.bias_slices", {"layer.out"},
        fmt::format("'adapters.bias_slices' is [{}] of {} slices", fmt::join(some, ", "), slices),
        "slices by number, from 0, ascending, each once");
  }
}

// A stride that is not 0 has to be so long.
struct LeastStride {
  const char* field;
  const char* of;  // another field that it follows from
  std::int64_t stride, least;
};

// Where operands lie.
void check_placing(const Case& spec, bool timed, const CaseChecker& checker) {
  const LayerShape& layer = spec.layer;
  const AdapterSpec& adapters = spec.adapters;
  const auto slices = static_cast<std::int64_t>(layer.widths.size());
  const bool apart = adapters.placing == Placing::kSeparate;
  const LeastStride strides[] = {
      {"adapters.a_stride", "layer.in", adapters.a_stride, layer.in_features},
      {"adapters.b_stride", "adapters.max_rank", adapters.b_stride, adapters.max_rank},
      {"layer.h_stride", "adapters.max_rank", layer.h_stride,
       (apart ? 1 : slices) * adapters.max_rank}};
  for (const LeastStride& each : strides) {
    if (each.stride != 0 && each.stride < each.least) {
      checker.fail(
          each.field, {each.of},
          fmt::format("'{}' is {}, but a row has {} elements", each.field, each.stride, each.least),
          fmt::format("0, or at least {}", each.least));
    }
  }
  const auto gap = std::find_if(std::begin(strides), std::end(strides),
                                [](const LeastStride& each) { return each.stride > each.least; });
  const char* const untimed = !apart                       ? "adapters.placing"
                              : layer.x_column_stride != 1 ? "layer.x_column_stride"
                              : gap != std::end(strides)   ? gap->field
                                                           : nullptr;
  if (untimed != nullptr && timed) {
    checker.fail(untimed, {"measure", "measure.enabled"},
                 "operands with gaps or of all slices in one buffer are proved, not timed",
                 "measure: false");
  }
}

void check_op(const Case& spec, bool timed, const CaseChecker& checker) {
  if (is_eight_bits(spec.intermediate)) {
    check_quantised_h(spec, checker);
  } else if (spec.intermediate != Dtype::kFp32 && spec.intermediate != spec.dtype) {
    checker.fail("intermediate", {"dtype"},
                 fmt::format("'intermediate' is {} with dtype {}", name(spec.intermediate),
                             name(spec.dtype)),
                 "fp32 or the same as `dtype`");
  }
  if (spec.op == Op::kEmbedding && spec.scale_at == ScaleAt::kShrink) {
    checker.fail("scale_at", {"op"}, "op embedding has no shrink that could scale", "expand");
  }
  if (spec.op == Op::kShrink && spec.adapters.bias) {
    checker.fail("adapters.bias", {"op"}, "op shrink has no output that a bias is added to",
                 "false");
  }
  check_bias(spec, checker);
  if (spec.idle_rows == IdleRows::kZeroed && (spec.add_inputs || spec.op == Op::kShrink)) {
    checker.fail("idle_rows", {"add_inputs", "op"},
                 "'idle_rows' is zeroed, but the op overwrites no y",
                 "kept, or add_inputs: false with an op that has an expand");
  }
  if (spec.inputs == Inputs::kPerSlice && !has_shrink(spec.op)) {
    checker.fail("inputs", {"op"}, fmt::format("'inputs' with op {}: it has no x", name(spec.op)),
                 "an op that shrinks");
  }
  if (spec.shrink_adds && spec.op != Op::kShrink) {
    checker.fail("shrink_adds", {"op"},
                 fmt::format("'shrink_adds' with op {}: its h is its own", name(spec.op)),
                 "op shrink");
  }
  if (spec.shrink_adds && timed) {
    checker.fail("shrink_adds", {"measure", "measure.enabled"},
                 "'shrink_adds' is timed: what is added to h is proved alone", "measure: false");
  }
  check_weights(spec, checker);
  check_activations(spec, checker);
  check_placing(spec, timed, checker);
  const std::int64_t rank = largest_rank(spec.adapters.rank);
  if (spec.adapters.max_rank < rank) {
    checker.fail(
        "adapters.max_rank", {"adapters.rank"},
        fmt::format("'adapters.max_rank' is {}, but a rank is {}", spec.adapters.max_rank, rank),
        "0, or at least the largest rank");
  }
}

// What only some kinds of layers have.
void check_kind(const Case& spec, const CaseChecker& checker) {
  const LayerSetup& setup = spec.setup;
  const auto refuse = [&](const char* path, const char* allowed) {
    if (checker.settings().has(path)) {
      checker.fail(path, {"layer.kind"}, fmt::format("'{}' of a {} layer", path, name(setup.kind)),
                   allowed);
    }
  };
  if (setup.kind != LayerKind::kLogits) {
    for (const char* path :
         {"layer.padding", "layer.soft_cap", "layer.logit_scale", "layer.gather_to"}) {
      refuse(path, "kind logits");
    }
  }
  if (setup.kind != LayerKind::kQkv && setup.kind != LayerKind::kMergedQkv) {
    refuse("layer.v_head_size", "kind qkv or merged_qkv");
  }
  if (setup.kind != LayerKind::kVocabEmbedding) {
    refuse("layer.extra_vocabulary", "kind vocab_embedding");
  }
  if (setup.kind == LayerKind::kVocabEmbedding) {
    if (setup.bias) {
      refuse("layer.bias", "other kinds: nothing is multiplied");
    }
    if (spec.scale_at == ScaleAt::kShrink) {
      refuse("scale_at", "expand: A is looked up");
    }
  }
  if (setup.missing_slices && !setup.missing.empty()) {
    refuse("layer.missing", "layer.missing_slices false: one of both says which are missing");
  }
  if (setup.skip_bias && !setup.bias) {
    checker.fail("layer.skip_bias", {"layer.bias"}, "'layer.skip_bias' without a bias",
                 "layer.bias: true");
  }
}

// What would do instead of a field with the op of the case; "" where the op takes it.
std::string instead_of(const Field& field, const Case& spec) {
  const Op op = spec.op;
  const bool taken = field.of_quantised_h && is_eight_bits(spec.intermediate);
  if (field.of_op_alone && *field.of_op_alone != op && !taken) {
    return fmt::format("op {}{}", name(*field.of_op_alone),
                       field.of_quantised_h ? ", or op linear with intermediate e4m3 or e5m2" : "");
  }
  if (const std::string_view why = why_no_field(field, op); !why.empty()) {
    return fmt::format("another op: {} {}", name(op), why);
  }
  return has_base(op) ? field.instead_of_layer : "";
}

// What is asked of a whole layer, of metadata, of quantisers, and of an op alone.
void check_fields_of_op(const Case& spec, const CaseChecker& checker) {
  for (const Field& field : fields()) {
    const std::string& path = field.doc.path;
    const std::string allowed = instead_of(field, spec);
    if (!allowed.empty() && checker.settings().has(path)) {
      checker.fail(path, {"op"}, fmt::format("'{}' with op {}", path, name(spec.op)), allowed);
    }
  }
}

// A list cycles over the slots, so what is left over of a longer one would never be used.
void check_slot_list(const std::string& path, const std::string& noun, std::size_t count,
                     const Case& spec, const CaseChecker& checker) {
  const std::int64_t slots = spec.adapters.slots;
  if (static_cast<std::int64_t>(count) > slots) {
    checker.fail(path, {"adapters.slots"},
                 fmt::format("{} {} for {} slot{}", count, noun, slots, slots == 1 ? "" : "s"),
                 "at most one for each slot; to sweep, put it under sweep; to mix, set "
                 "adapters.slots");
  }
}

void check_active(const Case& spec, const CaseChecker& checker) {
  const std::int64_t active = spec.adapters.active;
  const auto decode = static_cast<double>(spec.batch.decode);
  const auto sequences = spec.batch.decode + static_cast<std::int64_t>(spec.batch.prefill.size());
  const auto complain = [&](const std::vector<std::string>& others, const std::string& but) {
    checker.fail("adapters.active", others,
                 fmt::format("'adapters.active' is {}, but {}", active, but),
                 "0, or what the batch can touch");
  };
  if (active > spec.adapters.slots) {
    complain({"adapters.slots"}, fmt::format("there are {} slots", spec.adapters.slots));
    return;
  }
  const auto without =
      static_cast<std::int64_t>(std::floor(spec.no_adapter * static_cast<double>(sequences)));
  if (active > sequences - without) {
    complain({"batch.decode", "batch.prefill", "no_adapter"},
             fmt::format("{} sequences have an adapter", sequences - without));
    return;
  }
  const std::int64_t by_decode = decode > 0 ? reach(spec.skew, spec.adapters.slots) : 0;
  const std::int64_t by_prefill =
      spec.batch.prefill.empty() ? 0 : reach(spec.prefill_skew, spec.adapters.slots);
  if (active > std::max(by_decode, by_prefill)) {
    complain({"skew", "prefill_skew"},
             fmt::format("the law touches at most {}", std::max(by_decode, by_prefill)));
  }
}

void check_law(const std::string& path, const SkewLaw& law, const Case& spec,
               const CaseChecker& checker, FieldContext& context) {
  if (law.kind == Skew::kOneVsRest && spec.adapters.slots < 2) {
    checker.fail(path, {"adapters.slots"}, "law one-vs-rest with one slot", "at least 2 slots");
  }
  if (law.kind != Skew::kTrace || checker.is_broken("adapters.slots")) {
    return;
  }
  const TraceFile& file =
      context.traces.read(law.trace_file, context.folder, {}, checker.diagnostics());
  for (std::size_t i = 0; i < file.ids.size(); ++i) {
    if (file.ids[i] >= spec.adapters.slots) {
      checker.diagnostics().add(
          file.places[i], fmt::format("adapter {} with {} slots", file.ids[i], spec.adapters.slots),
          fmt::format("-1 to {}", spec.adapters.slots - 1));
    }
  }
}

void check_batch(const Case& spec, const CaseChecker& checker) {
  const std::int64_t tokens =
      std::accumulate(spec.batch.prefill.begin(), spec.batch.prefill.end(), spec.batch.decode);
  if (tokens > kMaxTokens) {
    checker.fail("batch.prefill", {"batch.decode"}, fmt::format("a batch of {} tokens", tokens),
                 fmt::format("at most {} tokens", kMaxTokens));
  }
}

void check_metadata(const Case& spec, const CaseChecker& checker) {
  const auto sequences = spec.batch.decode + static_cast<std::int64_t>(spec.batch.prefill.size());
  if (spec.metadata.requests != 0 && spec.metadata.requests < sequences) {
    checker.fail("metadata.requests", {"batch.decode", "batch.prefill"},
                 fmt::format("'metadata.requests' is {}, but each of {} sequences is one",
                             spec.metadata.requests, sequences),
                 "0, or at least the sequences");
  }
}

void check_plan(const Case& spec, const CaseChecker& checker) {
  const std::int64_t tokens =
      std::accumulate(spec.batch.prefill.begin(), spec.batch.prefill.end(), spec.batch.decode);
  if (has_base(spec.op)) {
    return;  // a layer takes neither
  }
  if (spec.plan.max_tokens > 0 && spec.plan.max_tokens < tokens) {
    checker.fail(
        "plan.max_tokens", {"batch.decode", "batch.prefill"},
        fmt::format("'plan.max_tokens' is {}, but the batch has {}", spec.plan.max_tokens, tokens),
        "0, or at least the tokens of the batch");
  }
  if (spec.plan.max_slots > spec.adapters.slots) {
    checker.fail("plan.max_slots", {"adapters.slots"},
                 fmt::format("'plan.max_slots' is {}, but there are {} slots", spec.plan.max_slots,
                             spec.adapters.slots),
                 "at most adapters.slots");
  }
}

// What only a published form of the plan has; op metadata makes a form and is handed none.
void check_plan_form(const Case& spec, const CaseChecker& checker) {
  const auto refuse = [&](const char* path, const std::string& allowed) {
    if (checker.settings().has(path)) {
      checker.fail(path, {"plan.form"},
                   fmt::format("'{}' of a plan in form {}", path, name(spec.plan.form)), allowed);
    }
  };
  if (has_base(spec.op) || !has_products(spec.op)) {
    return;
  }
  if (spec.plan.form == PlanForm::kSorted) {
    refuse("plan.grid", "plan.form: kernel or chunked");
  } else {
    refuse("plan.max_slots", "plan.form: sorted; plan.grid: slots serves all adapters");
  }
  if (spec.plan.form != PlanForm::kChunked) {
    refuse("plan.largest_chunk", "plan.form: chunked");
    refuse("plan.idle_segments", "plan.form: chunked");
  }
}

// Said only when nothing else is wrong: an unknown key may be the batch, misspelled.
void check_any_batch(const CaseChecker& checker) {
  const Settings& settings = checker.settings();
  if (checker.nothing_wrong() && !settings.has("batch.decode") && !settings.has("batch.prefill")) {
    checker.fail("batch.decode", {},
                 "no tokens: set batch.decode or batch.prefill; batch.decode: 0 asks for an empty "
                 "batch",
                 "");
  }
}

void check_tuning(const Case& spec, const CaseChecker& checker, const FieldContext& context) {
  if (context.check_tuning) {
    if (const auto fault = context.check_tuning(spec.tuning)) {
      checker.fail(fault->key, fault->others, fault->what, fault->allowed);
    }
  }
}

// What another check has refused needs no second sentence.
void check_division(const Case& spec, const CaseChecker& checker, const FieldContext& context) {
  if (!context.check_layer || !checker.diagnostics().empty()) {
    return;
  }
  if (const auto fault = context.check_layer(spec)) {
    checker.fail(fault->key,
                 {"layer.tp", "layer.fully_sharded", "layer.kind", "layer.kv_heads",
                  "layer.missing", "layer.packed", "adapters.max_rank", "adapters.rank",
                  "layer.out", "layer.in", "layers", "model", "op"},
                 fault->what, fault->allowed);
  }
}

void check_measure(const Case& spec, const CaseChecker& checker) {
  const MeasureSettings& measure = spec.measure;
  if (measure.min_samples > measure.max_samples) {
    checker.fail("measure.min_samples", {"measure.max_samples"},
                 fmt::format("'measure.min_samples' is {}, but max_samples is {}",
                             measure.min_samples, measure.max_samples),
                 "at most max_samples");
  }
  if (measure.min_time_ms > measure.max_time_ms) {
    checker.fail("measure.min_time_ms", {"measure.max_time_ms"},
                 fmt::format("'measure.min_time_ms' is {}, but max_time_ms is {}",
                             measure.min_time_ms, measure.max_time_ms),
                 "at most max_time_ms");
  }
}

}  // namespace

void CaseChecker::fail(const std::string& path, const std::vector<std::string>& others,
                       const std::string& what, const std::string& allowed,
                       const std::string& suggestion) const {
  const Value* place = settings_.find(path);
  bool follows = is_broken(path);
  for (const std::string& other : others) {
    place = place == nullptr ? settings_.find(other) : place;
    follows = follows || is_broken(other);
  }
  if (!follows) {
    diagnostics_.add(place == nullptr ? fallback_ : place->where, what, allowed, suggestion);
  }
}

void check_combinations(const Case& spec, bool has_layer, const CaseChecker& checker,
                        FieldContext& context) {
  if (has_layer) {
    check_layer(spec, checker);
    check_division(spec, checker, context);
  }
  check_op(spec, spec.measure.enabled && context.timed, checker);
  check_fields_of_op(spec, checker);
  if (has_base(spec.op)) {
    check_kind(spec, checker);
  }
  check_batch(spec, checker);
  check_slot_list("adapters.rank", "ranks", spec.adapters.rank.list.size(), spec, checker);
  check_slot_list("adapters.scale", "scales", spec.adapters.scale.size(), spec, checker);
  check_slot_list("layer.missing", "lists", spec.setup.missing.size(), spec, checker);
  check_active(spec, checker);
  check_law("skew", spec.skew, spec, checker, context);
  if (checker.settings().has("prefill_skew")) {
    check_law("prefill_skew", spec.prefill_skew, spec, checker, context);
  }
  check_metadata(spec, checker);
  check_quantiser(spec, checker);
  check_experts(spec, checker, context);
  check_plan(spec, checker);
  check_plan_form(spec, checker);
  check_tuning(spec, checker, context);
  check_measure(spec, checker);
  check_any_batch(checker);
}

}  // namespace lora_bench
