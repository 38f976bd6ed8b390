#include "ops/plugin.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "core/error.h"
#include "lora_bench_backend.h"
#include "ops/plugin_call.h"
#include "ops/plugin_takes.h"

namespace lora_bench {
namespace {

static_assert(static_cast<int>(Op::kShrink) == LORA_BENCH_SHRINK);
static_assert(static_cast<int>(Op::kExpand) == LORA_BENCH_EXPAND);
static_assert(static_cast<int>(Op::kLinear) == LORA_BENCH_LINEAR);
static_assert(static_cast<int>(Op::kEmbedding) == LORA_BENCH_EMBEDDING);
static_assert(static_cast<int>(Op::kLogits) == LORA_BENCH_LOGITS);
static_assert(static_cast<int>(ScaleAt::kShrink) == LORA_BENCH_SCALE_AT_SHRINK);
static_assert(static_cast<int>(ScaleAt::kExpand) == LORA_BENCH_SCALE_AT_EXPAND);

static_assert(static_cast<int>(PlanForm::kSorted) == LORA_BENCH_PLAN_SORTED);
static_assert(static_cast<int>(PlanForm::kKernel) == LORA_BENCH_PLAN_KERNEL);
static_assert(static_cast<int>(PlanForm::kChunked) == LORA_BENCH_PLAN_CHUNKED);
static_assert(static_cast<int>(BiasAdded::kBefore) == LORA_BENCH_BIAS_BEFORE);
static_assert(static_cast<int>(BiasAdded::kAfter) == LORA_BENCH_BIAS_AFTER);

constexpr std::array<std::pair<Dtype, std::int32_t>, 3> kDtypes{{{Dtype::kFp32, LORA_BENCH_FP32},
                                                                 {Dtype::kBf16, LORA_BENCH_BF16},
                                                                 {Dtype::kFp16, LORA_BENCH_FP16}}};

static_assert(static_cast<int>(WeightsScale::kNone) == LORA_BENCH_WEIGHTS_UNSCALED);
static_assert(static_cast<int>(WeightsScale::kTensor) == LORA_BENCH_WEIGHTS_BY_TENSOR);
static_assert(static_cast<int>(WeightsScale::kChannel) == LORA_BENCH_WEIGHTS_BY_CHANNEL);
static_assert(static_cast<int>(WeightsScale::kBlock) == LORA_BENCH_WEIGHTS_BY_BLOCK);

std::int32_t number_of(Dtype dtype) {
  if (is_eight_bits(dtype)) {  // of operands; no sum is kept so
    return dtype == Dtype::kE4m3 ? LORA_BENCH_E4M3 : LORA_BENCH_E5M2;
  }
  return std::find_if(kDtypes.begin(), kDtypes.end(),
                      [dtype](const auto& entry) { return entry.first == dtype; })
      ->second;
}

lora_bench_problem interface_of(const Problem& problem) {
  lora_bench_problem out{};
  out.struct_size = size_of<lora_bench_problem>();
  out.op = static_cast<std::int32_t>(problem.op);
  const auto dtype = [&](Role role) { return number_of(problem.dtype[role]); };
  out.x_dtype = dtype(Role::kX);
  out.a_dtype = dtype(Role::kA);
  out.b_dtype = dtype(Role::kB);
  out.bias_dtype = dtype(Role::kBias);
  out.h_dtype = dtype(Role::kH);
  out.y_dtype = dtype(Role::kY);
  out.scale_at = static_cast<std::int32_t>(problem.scale_at);
  out.add_inputs = problem.add_inputs ? 1 : 0;
  out.has_bias = problem.bias ? 1 : 0;
  out.tokens = problem.tokens;
  out.in_features = problem.in_features;
  out.offset_start = problem.offset_start;
  out.x_stride = problem.x_stride;
  out.y_stride = problem.y_stride;
  out.slots = problem.slots;
  out.max_rank = problem.max_rank;
  out.slices = problem.slices();
  out.widths = problem.widths.data();
  out.rank = problem.rank.data();
  out.active = problem.plan.active();
  out.rows_with_adapter = problem.plan.rows_with_adapter();
  out.adapter_of_token = problem.plan.adapter_of_token.data();
  out.token_order = problem.plan.token_order.data();
  out.active_ids = problem.plan.active_ids.data();
  out.group_starts = problem.plan.group_starts.data();
  out.own_inputs = problem.own_inputs() ? 1 : 0;
  out.plan_form = static_cast<std::int32_t>(problem.plan_form);
  out.idle_segments = problem.idle_segments ? 1 : 0;
  out.groups = problem.groups();
  out.chunk = problem.chunk;
  out.placing = static_cast<std::int32_t>(problem.layout.placing);
  out.x_column_stride = problem.layout.x_column_stride;
  out.a_stride = problem.a_pitch();
  out.b_stride = problem.b_pitch();
  out.h_stride = problem.h_pitch();
  out.weights_scale = static_cast<std::int32_t>(problem.weights_scale);
  out.block_rows = problem.weights_scale == WeightsScale::kChannel ? 1 : problem.block_rows;
  out.block_columns = problem.block_columns;
  if (problem.has_scaled_activations()) {
    const ScalesOfRows scales = problem.scales_of_rows();
    const bool of_x = problem.has_scaled_x();
    (of_x ? out.x_scale_rows : out.h_scale_rows) = scales.rows;
    (of_x ? out.x_scale_columns : out.h_scale_columns) = scales.across;
    (of_x ? out.x_group : out.h_group) = problem.activations_group;
  }
  if (problem.h_quantiser) {
    const QuantiserRule& rule = problem.h_quantiser->rule;
    out.h_group = problem.h_quantiser->group;
    out.quantises_h = 1;
    out.h_code_dtype = number_of(rule.to);
    out.h_multiply = rule.convert == Convert::kMultiply ? 1 : 0;
    out.h_power_of_two = rule.power_of_two ? 1 : 0;
    out.h_least_amax = rule.least_amax;
    out.h_least_scale = rule.least_scale;
  }
  out.experts = problem.route.experts;
  out.choices = problem.route.choices;
  out.x_rows = problem.x_rows();
  out.shares_x = problem.shares_x() ? 1 : 0;
  out.has_factors = problem.has_factors() ? 1 : 0;
  out.rank0_bias = problem.biases_rank0() ? 1 : 0;
  out.adds_to_h = problem.adds_to_h() ? 1 : 0;
  out.zeroes_idle_rows = problem.zeroes_idle_rows() ? 1 : 0;
  return out;
}

lora_bench_operands interface_of(const Problem& problem, const Operands& operands) {
  lora_bench_operands out{};
  out.struct_size = size_of<lora_bench_operands>();
  out.x = operands.x;
  out.a = operands.a.data();
  out.b = operands.b.data();
  out.bias = problem.bias ? operands.bias.data() : nullptr;
  out.h = operands.h;
  out.y = operands.y;
  out.workspace = operands.workspace;
  out.prepared = operands.prepared;
  if (problem.has_scaled_weights()) {
    out.a_scale = operands.a_scale.data();
    out.b_scale = operands.b_scale.data();
  }
  out.x_scale = operands.x_scale;
  out.h_scale = operands.h_scale;
  out.adapter_of_token = operands.adapter_of_token;
  out.token_order = operands.token_order;
  out.active_ids = operands.active_ids;
  out.group_starts = operands.group_starts;
  out.rank = operands.rank;
  out.scale = operands.scale;
  out.token_of_row = operands.token_of_row;
  out.factor = operands.factor;
  return out;
}

lora_bench_numerics default_numerics(const Problem& problem) {
  lora_bench_numerics numerics{};
  numerics.struct_size = size_of<lora_bench_numerics>();
  numerics.partial = LORA_BENCH_FP32;
  // A given h of eight bits is kept by nobody.
  numerics.intermediate = number_of(problem.has_scaled_h() ? Dtype::kFp32 : problem.kept_h());
  numerics.deterministic = 1;
  numerics.batch_invariant = 1;
  numerics.graph_safe = 1;
  numerics.unit_roundoff = 0x1p-24;
  numerics.shrink_depth = problem.in_features;
  numerics.expand_depth = problem.max_rank + 2;
  numerics.partials = 1;
  return numerics;
}

Dtype declared_dtype(const char* field, std::int32_t number) {
  for (const auto& [ours, theirs] : kDtypes) {
    if (theirs == number) {
      return ours;
    }
  }
  throw CaseError(
      fmt::format("numerics declares {} = {}; allowed: LORA_BENCH_FP32 ({}), "
                  "LORA_BENCH_BF16 ({}), LORA_BENCH_FP16 ({})",
                  field, number, static_cast<int>(LORA_BENCH_FP32),
                  static_cast<int>(LORA_BENCH_BF16), static_cast<int>(LORA_BENCH_FP16)));
}

// Of a step that quantises h. Eight bits with a scale hold what fp16 cannot.
Dtype declared_h_of_quantised(const Problem& problem, std::int32_t number) {
  for (const Dtype dtype : {problem.kept_h(), Dtype::kFp32, Dtype::kBf16}) {
    if (number_of(dtype) == number) {
      return dtype;
    }
  }
  throw CaseError(fmt::format(
      "numerics declares intermediate = {} of an h that is quantised to {}; allowed: that ({}), or "
      "where it is kept instead LORA_BENCH_FP32 ({}), LORA_BENCH_BF16 ({})",
      number, name(problem.kept_h()), number_of(problem.kept_h()),
      static_cast<int>(LORA_BENCH_FP32), static_cast<int>(LORA_BENCH_BF16)));
}

// What a plugin is shown is a copy: its interface has pointers to const, which a cast makes
// writable, and a proof that reads what the plugin has changed proves nothing.
class HandedProblem {
 public:
  // What `call`, a function of the plugin's, returns.
  template <typename Call>
  auto shown_to(const char* function, const Problem& problem, const Call& call) {
    if (!(problem == handed_)) {
      handed_ = problem;
    }
    lora_bench_problem given = interface_of(handed_);  // a const one could not be seen to change
    const Before<lora_bench_problem> before(given);
    const auto result = called(function, [&] { return call(given); });
    refuse_changes(problem, function);
    if (!before.still(given)) {
      refuse_write(function, "problem");
    }
    return result;
  }

 private:
  // What a call wrote is put right for the next.
  void refuse_changes(const Problem& problem, const char* function) {
    if (problem == handed_) {
      return;
    }
    const char* where = problem.rank != handed_.rank       ? "problem->rank"
                        : problem.widths != handed_.widths ? "problem->widths"
                                                           : "the plan of problem";
    handed_ = problem;
    refuse_write(function, where);
  }

  Problem handed_;
};

class PluginBackend final : public Backend {
 public:
  PluginBackend(std::string name, const lora_bench_descriptor& descriptor)
      : name_(std::move(name)),
        descriptor_(descriptor),
        metadata_(plugin_metadata(descriptor)),
        quantiser_(plugin_quantiser(descriptor)) {}

  [[nodiscard]] const MetadataBuilder* metadata() const override { return metadata_.get(); }
  [[nodiscard]] const Quantiser* quantiser() const override { return quantiser_.get(); }

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view summary() const override { return descriptor_.summary; }
  [[nodiscard]] Space space() const override {
    return descriptor_.space == LORA_BENCH_CUDA ? Space::kDevice : Space::kHost;
  }

  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& facts) const override {
    if (std::string why_not = not_named(problem, takes()); !why_not.empty()) {
      return {false, std::move(why_not)};
    }
    const lora_bench_device device = interface_of(facts);
    PluginText why{};
    const std::int32_t code =
        handed_.shown_to("supports", problem, [&](const lora_bench_problem& given) {
          return descriptor_.supports(&given, &device, why.data(),
                                      static_cast<std::int64_t>(why.size()));
        });
    return code == 0 ? Support{} : Support{false, sentence(why, code, "supports")};
  }

  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    lora_bench_numerics given = default_numerics(problem);
    if (descriptor_.numerics != nullptr) {
      handed_.shown_to("numerics", problem, [&](const lora_bench_problem& asked) {
        descriptor_.numerics(&asked, &given);
        return 0;
      });
    }
    given.summation[sizeof(given.summation) - 1] = '\0';
    Numerics numerics;
    numerics.unit_roundoff = given.unit_roundoff;
    numerics.shrink_depth = given.shrink_depth;
    numerics.expand_depth = given.expand_depth;
    numerics.partial = declared_dtype("partial", given.partial);
    numerics.partials = given.partials;
    numerics.intermediate = problem.h_quantiser
                                ? declared_h_of_quantised(problem, given.intermediate)
                                : declared_dtype("intermediate", given.intermediate);
    numerics.casts_h = given.casts_h != 0;
    if (given.bias_added < LORA_BENCH_BIAS_WITH_DELTA || given.bias_added > LORA_BENCH_BIAS_AFTER) {
      throw CaseError(
          fmt::format("numerics declares bias_added = {}; allowed: LORA_BENCH_BIAS_WITH_DELTA, "
                      "LORA_BENCH_BIAS_BEFORE, LORA_BENCH_BIAS_AFTER",
                      given.bias_added));
    }
    numerics.bias_added = static_cast<BiasAdded>(given.bias_added);
    numerics.rounds_delta = given.rounds_delta != 0;
    numerics.deterministic = given.deterministic != 0;
    numerics.batch_invariant = given.batch_invariant != 0;
    numerics.graph_safe = given.graph_safe != 0;
    numerics.replays_other_batches = given.replays_other_batches != 0;
    numerics.summation = given.summation;
    const std::string fault = beyond_need(problem, numerics);
    if (!fault.empty()) {
      throw CaseError("numerics declares " + fault);
    }
    return numerics;
  }

  [[nodiscard]] bool slow_to_launch() const override {
    return has(descriptor_, &lora_bench_descriptor::slow_to_launch) &&
           descriptor_.slow_to_launch != 0;
  }

  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return bytes("workspace_bytes", descriptor_.workspace_bytes, problem);
  }

  [[nodiscard]] std::int64_t prepared_bytes(const Problem& problem) const override {
    return has(descriptor_, &lora_bench_descriptor::prepare) && descriptor_.prepare != nullptr
               ? bytes("prepared_bytes", descriptor_.prepared_bytes, problem)
               : 0;
  }

  void prepare(const Problem& problem, const Operands& operands, Stream stream) const override {
    call("prepare", descriptor_.prepare, problem, operands, stream);
  }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    call("launch", descriptor_.launch, problem, operands, stream);
  }

 private:
  using Bytes = decltype(lora_bench_descriptor::workspace_bytes);
  using Enqueue = decltype(lora_bench_descriptor::launch);

  // Of NULL none.
  [[nodiscard]] std::int64_t bytes(const char* name, Bytes function, const Problem& problem) const {
    if (function == nullptr) {
      return 0;
    }
    const std::int64_t bytes = handed_.shown_to(
        name, problem, [&](const lora_bench_problem& given) { return function(&given); });
    if (bytes < 0) {
      throw CaseError(fmt::format("{} returned {}; must be 0 or more", name, bytes));
    }
    return bytes;
  }

  void call(const char* name, Enqueue function, const Problem& problem, const Operands& operands,
            Stream stream) const {
    operands_ = operands;
    lora_bench_operands addresses = interface_of(problem, operands_);  // not const, as there
    const Before<lora_bench_operands> before(addresses);
    PluginText error{};
    const std::int32_t code = handed_.shown_to(name, problem, [&](const auto& given) {
      return function(&given, &addresses, stream.handle, error.data(),
                      static_cast<std::int64_t>(error.size()));
    });
    if (!before.still(addresses) || operands_.a != operands.a || operands_.b != operands.b ||
        operands_.bias != operands.bias || operands_.a_scale != operands.a_scale ||
        operands_.b_scale != operands.b_scale) {
      refuse_write(name, "operands");
    }
    if (code != 0) {
      throw CaseError(sentence(error, code, name));
    }
  }

  [[nodiscard]] std::uint64_t takes() const {
    return has(descriptor_, &lora_bench_descriptor::takes) ? descriptor_.takes : 0;
  }

  std::string name_;
  const lora_bench_descriptor& descriptor_;
  std::unique_ptr<MetadataBuilder> metadata_;
  std::unique_ptr<Quantiser> quantiser_;
  mutable HandedProblem handed_;
  mutable Operands operands_;  // copied as the problem is, with its lists of addresses
};

}  // namespace

std::unique_ptr<Backend> make_plugin_backend(std::string name,
                                             const lora_bench_descriptor& descriptor) {
  return std::make_unique<PluginBackend>(std::move(name), descriptor);
}

}  // namespace lora_bench
