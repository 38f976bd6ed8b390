#include "core/error.h"
#include "ops/plugin_call.h"

namespace lora_bench {
namespace {

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

class PluginMetadata final : public MetadataBuilder {
 public:
  explicit PluginMetadata(const lora_bench_descriptor& descriptor) : descriptor_(descriptor) {}

  [[nodiscard]] Support supports(const MetadataProblem& problem,
                                 const DeviceFacts& facts) const override {
    if (descriptor_.supports_metadata == nullptr) {
      return {};
    }
    const lora_bench_device device = interface_of(facts);
    PluginText why{};
    lora_bench_metadata step = interface_of(problem);
    const ShownArrays arrays(problem);
    arrays.show_in(step);
    const std::int32_t code = asked("supports_metadata", step, [&](auto& given) {
      return descriptor_.supports_metadata(&given, &device, why.data(),
                                           static_cast<std::int64_t>(why.size()));
    });
    return code == 0 ? Support{} : Support{false, sentence(why, code, "supports_metadata")};
  }

  void launch(const MetadataProblem& problem, const ArrayOperands& operands,
              Stream stream) const override {
    const ArrayOperands handed = operands;
    lora_bench_metadata step = interface_of(problem);
    const ShownArrays arrays(problem);
    arrays.show_in(step);
    step.inputs = handed.inputs.data();
    step.outputs = handed.outputs.data();
    PluginText error{};
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

}  // namespace

std::unique_ptr<MetadataBuilder> plugin_metadata(const lora_bench_descriptor& descriptor) {
  const bool there =
      has(descriptor, &lora_bench_descriptor::metadata) && descriptor.metadata != nullptr;
  return there ? std::make_unique<PluginMetadata>(descriptor) : nullptr;
}

}  // namespace lora_bench
