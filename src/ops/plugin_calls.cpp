#include "ops/plugin.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.h"
#include "lora_bench_backend.h"
#include "ops/plugin_takes.h"

namespace lora_bench {
namespace {

using Text = std::array<char, 1024>;

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

std::optional<std::int32_t> number_of(Dtype dtype) {
  for (const auto& [ours, theirs] : kDtypes) {
    if (ours == dtype) {
      return theirs;
    }
  }
  return std::nullopt;
}

template <typename Struct>
constexpr std::uint32_t size_of() {
  return static_cast<std::uint32_t>(sizeof(Struct));
}

lora_bench_problem interface_of(const Problem& problem) {
  lora_bench_problem out{};
  out.struct_size = size_of<lora_bench_problem>();
  out.op = static_cast<std::int32_t>(problem.op);
  const auto dtype = [&](Role role) { return number_of(problem.dtype[role]).value_or(-1); };
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
  out.adapter_of_token = operands.adapter_of_token;
  out.token_order = operands.token_order;
  out.active_ids = operands.active_ids;
  out.group_starts = operands.group_starts;
  out.rank = operands.rank;
  out.scale = operands.scale;
  return out;
}

lora_bench_device interface_of(const DeviceFacts& facts) {
  lora_bench_device out{};
  out.struct_size = size_of<lora_bench_device>();
  out.compute_capability = facts.compute_capability;
  out.multiprocessors = facts.multiprocessors;
  out.cache_bytes = facts.cache_bytes;
  out.memory_bytes = facts.memory_bytes;
  return out;
}

// One that forgot to end its sentence must not be read beyond the buffer.
std::string sentence(Text& text, std::int32_t code, const char* function) {
  text.back() = '\0';
  return text.front() != '\0' ? std::string(text.data())
                              : fmt::format("{} returned {} without a sentence", function, code);
}

// Exceptions must not cross a C interface; of a library that lets one out, the row tells.
template <typename Call>
auto called(const char* function, const Call& call) {
  const KeptFloatingPoint kept;
  try {
    return call();
  } catch (const std::exception& error) {
    throw CaseError(fmt::format("{} let an exception out: {}; catch it and return an error",
                                function, error.what()));
  } catch (...) {
    throw CaseError(fmt::format("{} let an exception out; catch it and return an error", function));
  }
}

lora_bench_numerics default_numerics(const Problem& problem) {
  lora_bench_numerics numerics{};
  numerics.struct_size = size_of<lora_bench_numerics>();
  numerics.partial = LORA_BENCH_FP32;
  numerics.intermediate = number_of(problem.dtype[Role::kH]).value_or(LORA_BENCH_FP32);
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

// The bytes of a struct, padding too, as they were.
template <typename Struct>
class Before {
 public:
  explicit Before(const Struct& given) { std::memcpy(bytes_.data(), &given, sizeof(Struct)); }
  [[nodiscard]] bool still(const Struct& given) const {
    return std::memcmp(bytes_.data(), &given, sizeof(Struct)) == 0;
  }

 private:
  std::array<std::byte, sizeof(Struct)> bytes_;
};

[[noreturn]] void refuse_write(const char* function, const char* where) {
  throw CaseError(
      fmt::format("{} wrote into {}, which is there to be read; give the kernel a copy to work on",
                  function, where));
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

static_assert(static_cast<int>(Form::kKernel) == LORA_BENCH_FORM_KERNEL);
static_assert(static_cast<int>(Form::kPrefill) == LORA_BENCH_FORM_PREFILL);
static_assert(static_cast<int>(Form::kSampler) == LORA_BENCH_FORM_SAMPLER);
static_assert(static_cast<int>(Form::kEmbedding) == LORA_BENCH_FORM_EMBEDDING);
static_assert(static_cast<int>(Form::kChunked) == LORA_BENCH_FORM_CHUNKED);

lora_bench_metadata interface_of(const MetadataProblem& problem) {
  lora_bench_metadata out{};
  out.struct_size = size_of<lora_bench_metadata>();
  out.form = static_cast<std::int32_t>(problem.form);
  out.tokens = problem.tokens;
  out.samples = problem.samples;
  out.requests = problem.requests;
  out.slots = problem.slots;
  out.vocabulary = problem.vocabulary;
  out.extra_vocabulary = problem.extra_vocabulary;
  out.chunk = problem.chunk;
  out.most_segments = problem.most_segments();
  out.idle_segments = problem.idle_segments ? 1 : 0;
  return out;
}

// The functions of a plugin that make metadata, which it may not have.
class PluginMetadata final : public MetadataBuilder {
 public:
  explicit PluginMetadata(const lora_bench_descriptor& descriptor) : descriptor_(descriptor) {}

  [[nodiscard]] bool there() const {
    constexpr std::size_t kEnd =
        offsetof(lora_bench_descriptor, metadata) + sizeof(descriptor_.metadata);
    return descriptor_.struct_size >= kEnd && descriptor_.metadata != nullptr;
  }

  [[nodiscard]] Support supports(const MetadataProblem& problem,
                                 const DeviceFacts& facts) const override {
    if (descriptor_.supports_metadata == nullptr) {
      return {};
    }
    const lora_bench_device device = interface_of(facts);
    Text why{};
    const std::int32_t code = asked("supports_metadata", interface_of(problem), [&](auto& given) {
      return descriptor_.supports_metadata(&given, &device, why.data(),
                                           static_cast<std::int64_t>(why.size()));
    });
    return code == 0 ? Support{} : Support{false, sentence(why, code, "supports_metadata")};
  }

  void launch(const MetadataProblem& problem, const MetadataOperands& operands,
              Stream stream) const override {
    const MetadataOperands handed = operands;
    lora_bench_metadata step = interface_of(problem);
    step.inputs = handed.inputs.data();
    step.outputs = handed.outputs.data();
    Text error{};
    const std::int32_t code = asked("metadata", step, [&](auto& given) {
      return descriptor_.metadata(&given, stream.handle, error.data(),
                                  static_cast<std::int64_t>(error.size()));
    });
    if (handed.inputs != operands.inputs || handed.outputs != operands.outputs) {
      refuse_write("metadata", "inputs or outputs");
    }
    if (code != 0) {
      throw CaseError(sentence(error, code, "metadata"));
    }
  }

 private:
  template <typename Call>
  static std::int32_t asked(const char* function, lora_bench_metadata step, const Call& call) {
    const Before<lora_bench_metadata> before(step);
    const std::int32_t code = called(function, [&] { return call(step); });
    if (!before.still(step)) {
      refuse_write(function, "step");
    }
    return code;
  }

  const lora_bench_descriptor& descriptor_;
};

class PluginBackend final : public Backend {
 public:
  PluginBackend(std::string name, const lora_bench_descriptor& descriptor)
      : name_(std::move(name)), descriptor_(descriptor), metadata_(descriptor) {}

  [[nodiscard]] const MetadataBuilder* metadata() const override {
    return metadata_.there() ? &metadata_ : nullptr;
  }

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view summary() const override { return descriptor_.summary; }
  [[nodiscard]] Space space() const override {
    return descriptor_.space == LORA_BENCH_CUDA ? Space::kDevice : Space::kHost;
  }

  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& facts) const override {
    for (const Dtype dtype : problem.dtype.of_role) {
      if (!number_of(dtype)) {
        return {false,
                fmt::format("the plugin interface has no dtype {}", lora_bench::name(dtype))};
      }
    }
    if (std::string why_not = not_named(problem, takes()); !why_not.empty()) {
      return {false, std::move(why_not)};
    }
    const lora_bench_device device = interface_of(facts);
    Text why{};
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
    numerics.intermediate = declared_dtype("intermediate", given.intermediate);
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

  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    if (descriptor_.workspace_bytes == nullptr) {
      return 0;
    }
    const std::int64_t bytes = handed_.shown_to(
        "workspace_bytes", problem,
        [&](const lora_bench_problem& given) { return descriptor_.workspace_bytes(&given); });
    if (bytes < 0) {
      throw CaseError(fmt::format("workspace_bytes returned {}; must be 0 or more", bytes));
    }
    return bytes;
  }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    operands_ = operands;
    lora_bench_operands addresses = interface_of(problem, operands_);  // not const, as there
    const Before<lora_bench_operands> before(addresses);
    Text error{};
    const std::int32_t code =
        handed_.shown_to("launch", problem, [&](const lora_bench_problem& given) {
          return descriptor_.launch(&given, &addresses, stream.handle, error.data(),
                                    static_cast<std::int64_t>(error.size()));
        });
    if (!before.still(addresses) || operands_.a != operands.a || operands_.b != operands.b ||
        operands_.bias != operands.bias) {
      refuse_write("launch", "operands");
    }
    if (code != 0) {
      throw CaseError(sentence(error, code, "launch"));
    }
  }

 private:
  // None of a library that was built before there were any.
  [[nodiscard]] std::uint64_t takes() const {
    constexpr std::size_t kEnd = offsetof(lora_bench_descriptor, takes) + sizeof(descriptor_.takes);
    return descriptor_.struct_size >= kEnd ? descriptor_.takes : 0;
  }

  std::string name_;
  const lora_bench_descriptor& descriptor_;
  PluginMetadata metadata_;
  mutable HandedProblem handed_;
  mutable Operands operands_;  // copied as the problem is, with its lists of addresses
};

}  // namespace

std::unique_ptr<Backend> make_plugin_backend(std::string name,
                                             const lora_bench_descriptor& descriptor) {
  return std::make_unique<PluginBackend>(std::move(name), descriptor);
}

}  // namespace lora_bench
