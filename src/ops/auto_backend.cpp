#include "ops/backends.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/clustered/clustered.h"
#include "kernels/clustered/resident.h"
#include "ops/auto_choice.h"
#include "ops/auto_tuning.h"
#include "ops/idle_rows.h"
#include "ops/kernel_params.h"
#else
#include "core/error.h"
#endif

namespace lora_bench {

#ifdef LORA_BENCH_HAVE_CUDA
namespace {

class AutoBackend final : public Backend {
 public:
  explicit AutoBackend(const AutoDevice& device)
      : device_(device),
        panel_(make_tuned_panel_backend()),
        naive_(make_naive_backend()),
        metadata_(make_device_metadata(device.compute_capability)),
        quantiser_(make_device_quantiser(device.compute_capability)) {}

  [[nodiscard]] std::string_view name() const override { return "auto"; }
  [[nodiscard]] std::string_view summary() const override { return kAutoSummary; }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] const MetadataBuilder* metadata() const override { return metadata_.get(); }
  [[nodiscard]] const Quantiser* quantiser() const override { return quantiser_.get(); }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    const Support taken = tensor_cores_take(
        problem, device,
        Semantics(Semantic::kScaledWeights, Semantic::kSharedX, Semantic::kRowFactors));
    const std::string why_not = taken.yes ? why_not_tuned(device_, problem) : "";
    return why_not.empty() ? taken : Support{false, why_not};
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return panel_->numerics(problem);
  }
  // Also of what goes to clusters: whether it can is known only with the addresses.
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    return panel_->workspace_bytes(problem);
  }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    const AutoFamily family =
        problem.groups() == 0 ? AutoFamily::kPanel : auto_family(device_, problem);
    if (family != AutoFamily::kPanel &&
        launched_clusters(family, problem, operands, static_cast<cudaStream_t>(stream.handle))) {
      return;
    }
    const bool panel = !problem.has_scaled_weights() ||
                       (family == AutoFamily::kPanel && panel_reads_eight_bits(problem, operands));
    (panel ? panel_ : naive_)->launch(problem, operands, stream);
  }

 private:
  // False where an operand does not begin on 16 bytes.
  [[nodiscard]] bool launched_clusters(AutoFamily family, const Problem& problem,
                                       const Operands& operands, cudaStream_t stream) const {
    const kernels::ShrinkParams shrink = shrink_params(problem, operands);
    const kernels::ExpandParams expand = expand_params(problem, operands);
    if (!copies_in_bulk(shrink, expand, size_bytes(problem.dtype[Role::kX]),
                        size_bytes(problem.dtype[Role::kA]))) {
      return false;
    }
    kernels::WeightScales scales;
    if (problem.has_scaled_weights()) {
      scales = weight_scales(problem, operands);
      if (!copies_in_bulk(scales)) {
        return false;
      }
    }
    // Plan, ranks, scales and weights come from copies, or from a kernel that ends before the next
    // one starts (kernels/clustered/README.md).
    constexpr bool kLinked = true;
    enqueue_zero_idle_rows(problem, operands, Stream{stream});
    const kernels::Number number = kernel_number(problem.dtype[Role::kX]);
    const kernels::Number intermediate = kernel_number(problem.dtype[Role::kH]);
    if (problem.has_scaled_weights()) {
      LORA_BENCH_CUDA_CHECK(family == AutoFamily::kResident
                                ? kernels::launch_resident_eight(
                                      number, intermediate, shrink, expand, scales,
                                      auto_resident_tuning(device_, problem), kLinked, stream)
                                : kernels::launch_clustered_eight(
                                      number, intermediate, shrink, expand, scales,
                                      auto_clustered_tuning(device_, problem), kLinked, stream));
      return true;
    }
    LORA_BENCH_CUDA_CHECK(
        family == AutoFamily::kResident
            ? kernels::launch_resident(number, intermediate, shrink, expand,
                                       auto_resident_tuning(device_, problem), kLinked, stream)
            : kernels::launch_clustered(number, intermediate, shrink, expand,
                                        auto_clustered_tuning(device_, problem), kLinked, stream));
    return true;
  }

  AutoDevice device_;
  std::unique_ptr<Backend> panel_;
  std::unique_ptr<Backend> naive_;  // eight bits at addresses that do not begin on 16 bytes
  std::unique_ptr<MetadataBuilder> metadata_;
  std::unique_ptr<Quantiser> quantiser_;
};

}  // namespace

std::unique_ptr<Backend> make_auto_backend() {
  return std::make_unique<AutoBackend>(auto_device(gpu_facts()));
}

#else

std::unique_ptr<Backend> make_auto_backend() { throw EnvironmentError(why_no_gpu()); }

#endif
}  // namespace lora_bench
