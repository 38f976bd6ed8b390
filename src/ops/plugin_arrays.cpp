#include "core/error.h"
#include "ops/plugin_call.h"

namespace lora_bench {
namespace {

static_assert(static_cast<int>(Dtype::kFp32) == LORA_BENCH_FP32);
static_assert(static_cast<int>(Dtype::kBf16) == LORA_BENCH_BF16);
static_assert(static_cast<int>(Dtype::kFp16) == LORA_BENCH_FP16);
static_assert(static_cast<int>(Dtype::kE4m3) == LORA_BENCH_E4M3);
static_assert(static_cast<int>(Dtype::kE5m2) == LORA_BENCH_E5M2);
static_assert(static_cast<int>(Form::kKernel) == LORA_BENCH_FORM_KERNEL);
static_assert(static_cast<int>(Form::kPrefill) == LORA_BENCH_FORM_PREFILL);
static_assert(static_cast<int>(Form::kSampler) == LORA_BENCH_FORM_SAMPLER);
static_assert(static_cast<int>(Form::kEmbedding) == LORA_BENCH_FORM_EMBEDDING);
static_assert(static_cast<int>(Form::kChunked) == LORA_BENCH_FORM_CHUNKED);
static_assert(static_cast<int>(Form::kAlign) == LORA_BENCH_FORM_ALIGN);

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
  if (problem.form == Form::kAlign) {
    out.experts = problem.experts;
    out.top_k = problem.top_k;
    out.block = problem.block;
    out.most_pairs = problem.most_pairs();
  }
  return out;
}

// The arrays of a step as a plugin sees them.
class ShownArrays {
 public:
  explicit ShownArrays(const MetadataProblem& problem)
      : inputs_(shown(inputs_of(problem))), outputs_(shown(outputs_of(problem))) {}

  void show_in(lora_bench_metadata& step) const {
    step.input_count = std::ssize(inputs_);
    step.output_count = std::ssize(outputs_);
    step.input_arrays = inputs_.data();
    step.output_arrays = outputs_.data();
  }

 private:
  static std::vector<lora_bench_array> shown(const std::vector<MetadataArray>& arrays) {
    std::vector<lora_bench_array> out;
    for (const MetadataArray& array : arrays) {
      // A name is a literal, which ends in a zero.
      out.push_back({array.name.data(), array.elements,
                     static_cast<std::int32_t>(array.element_bytes()),
                     array.type == Index::kFloat32 ? 1 : 0});
    }
    return out;
  }

  std::vector<lora_bench_array> inputs_, outputs_;
};

// Hands a step to a function of a plugin, which must leave it as it is.
template <typename Step, typename Call>
std::int32_t asked(const char* function, Step step, const Call& call) {
  const Before<Step> before(step);
  const std::int32_t code = called(function, [&] { return call(step); });
  if (!before.still(step)) {
    refuse_write(function, "step");
  }
  return code;
}

template <typename Step>
using PluginSupports = std::int32_t (*)(const Step*, const lora_bench_device*, char*, std::int64_t);
template <typename Step>
using PluginLaunch = std::int32_t (*)(const Step*, void*, char*, std::int64_t);

// Null: all steps.
template <typename Step>
Support plugin_support(PluginSupports<Step> supports, const char* function, const Step& step,
                       const DeviceFacts& facts) {
  if (supports == nullptr) {
    return {};
  }
  const lora_bench_device device = interface_of(facts);
  PluginText why{};
  const std::int32_t code = asked(function, step, [&](auto& given) {
    return supports(&given, &device, why.data(), static_cast<std::int64_t>(why.size()));
  });
  return code == 0 ? Support{} : Support{false, sentence(why, code, function)};
}

template <typename Step>
void plugin_launch(PluginLaunch<Step> launch, const char* function, const Step& step,
                   Stream stream) {
  PluginText error{};
  const std::int32_t code = asked(function, step, [&](auto& given) {
    return launch(&given, stream.handle, error.data(), static_cast<std::int64_t>(error.size()));
  });
  if (code != 0) {
    throw CaseError(sentence(error, code, function));
  }
}

class PluginMetadata final : public MetadataBuilder {
 public:
  explicit PluginMetadata(const lora_bench_descriptor& descriptor) : descriptor_(descriptor) {}

  [[nodiscard]] Support supports(const MetadataProblem& problem,
                                 const DeviceFacts& facts) const override {
    lora_bench_metadata step = interface_of(problem);
    const ShownArrays arrays(problem);
    arrays.show_in(step);
    return plugin_support(descriptor_.supports_metadata, "supports_metadata", step, facts);
  }

  void launch(const MetadataProblem& problem, const ArrayOperands& operands,
              Stream stream) const override {
    const ArrayOperands handed = operands;
    lora_bench_metadata step = interface_of(problem);
    const ShownArrays arrays(problem);
    arrays.show_in(step);
    step.inputs = handed.inputs.data();
    step.outputs = handed.outputs.data();
    plugin_launch(descriptor_.metadata, "metadata", step, stream);
    if (handed.inputs != operands.inputs || handed.outputs != operands.outputs) {
      refuse_write("metadata", "inputs or outputs");
    }
  }

 private:
  const lora_bench_descriptor& descriptor_;
};

lora_bench_quantise interface_of(const QuantiseProblem& problem) {
  lora_bench_quantise out{};
  out.struct_size = size_of<lora_bench_quantise>();
  out.x_dtype = static_cast<std::int32_t>(problem.from);
  out.q_dtype = static_cast<std::int32_t>(problem.to);
  out.multiply = problem.convert == Convert::kMultiply ? 1 : 0;
  out.power_of_two = problem.power_of_two ? 1 : 0;
  out.least_amax = problem.least_amax;
  out.least_scale = problem.least_scale;
  out.scales_given = problem.scales_given ? 1 : 0;
  out.rows = problem.rows;
  out.columns = problem.columns;
  out.x_stride = problem.stride;
  out.scale_rows = problem.scales.rows;
  out.scale_columns = problem.scales.across;
  out.group = problem.scales.columns;
  return out;
}

class PluginQuantiser final : public Quantiser {
 public:
  explicit PluginQuantiser(const lora_bench_descriptor& descriptor) : descriptor_(descriptor) {}

  [[nodiscard]] Support supports(const QuantiseProblem& problem,
                                 const DeviceFacts& facts) const override {
    return plugin_support(descriptor_.supports_quantise, "supports_quantise", interface_of(problem),
                          facts);
  }

  void launch(const QuantiseProblem& problem, const ArrayOperands& operands,
              Stream stream) const override {
    lora_bench_quantise step = interface_of(problem);
    step.x = operands.inputs[0];
    step.q = operands.outputs[0];
    if (problem.scales_given) {
      step.x_scale = static_cast<const float*>(operands.inputs[1]);
    } else {
      step.q_scale = static_cast<float*>(operands.outputs[1]);
    }
    plugin_launch(descriptor_.quantise, "quantise", step, stream);
  }

 private:
  const lora_bench_descriptor& descriptor_;
};

}  // namespace

std::unique_ptr<MetadataBuilder> plugin_metadata(const lora_bench_descriptor& descriptor) {
  const bool there =
      has(descriptor, &lora_bench_descriptor::metadata) && descriptor.metadata != nullptr;
  return there ? std::make_unique<PluginMetadata>(descriptor) : nullptr;
}

std::unique_ptr<Quantiser> plugin_quantiser(const lora_bench_descriptor& descriptor) {
  const bool there =
      has(descriptor, &lora_bench_descriptor::quantise) && descriptor.quantise != nullptr;
  return there ? std::make_unique<PluginQuantiser>(descriptor) : nullptr;
}

}  // namespace lora_bench
