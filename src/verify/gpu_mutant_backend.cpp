#include "verify/mutants.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include <algorithm>

#include "device/cuda_handles.h"
#include "kernels/mutant/mutant.h"
#include "ops/idle_rows.h"
#include "ops/kernel_params.h"
#else
#include "core/error.h"
#include "device/facts.h"
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_CUDA
namespace {

using kernels::MutantFault;

// What a launch found, for the launch after it.
struct PlanSizes {
  std::int64_t groups = 0;
  std::int64_t largest_group = 0;
};

PlanSizes sizes_of(const Plan& plan) {
  PlanSizes sizes;
  sizes.groups = plan.active();
  for (std::size_t group = 0; group + 1 < plan.group_starts.size(); ++group) {
    sizes.largest_group = std::max<std::int64_t>(
        sizes.largest_group, plan.group_starts[group + 1] - plan.group_starts[group]);
  }
  return sizes;
}

// What every sum over K is multiplied with: 1 where the sizes are not those of the fault.
float factor_by_size(const Problem& problem, MutantFault fault) {
  const auto is_size = [&] {
    switch (fault) {
      case MutantFault::kWrongFrom513Tokens:
        return problem.tokens > 512 && problem.tokens <= 1000;
      case MutantFault::kWrongFrom1001Tokens:
        return problem.tokens > 1000;
      case MutantFault::kWrongBeyond1024Slots:
        return problem.slots > 1024;
      case MutantFault::kWrongBeyondRank512:
        return problem.max_rank > 512;
      default:
        return false;
    }
  };
  return is_size() ? 1.25F : 1.0F;
}

// The number of the recording that a stream is in; 0: in none.
unsigned long long recording_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
  LORA_BENCH_CUDA_CHECK(cudaStreamGetCaptureInfo(stream, &status, &number));
  return status == cudaStreamCaptureStatusActive ? number : 0;
}

class GpuMutant final : public Backend {
 public:
  GpuMutant(MutantFault fault, const std::string& name)
      : fault_(fault), name_(name), other_(make_cuda_stream()) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view summary() const override {
    return "tiled GPU kernels with one fault, to test the verifier";
  }
  [[nodiscard]] Space space() const override { return Space::kDevice; }

  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts&) const override {
    if (const Support support = fast_kernels_take(problem); !support.yes) {
      return support;
    }
    if (problem.dtype[Role::kX] == Dtype::kFp32 || problem.dtype[Role::kH] != Dtype::kFp32) {
      return {false, "GPU mutants take bf16 and fp16 operands and an fp32 intermediate"};
    }
    if (problem.tokens > kernels::kMutantMostTokens || problem.slots > kernels::kMutantMostSlots) {
      return {false, "GPU mutants take at most 16384 tokens and 2048 slots"};
    }
    return {};
  }

  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    constexpr std::int64_t kTree = 5, kScaleAndParts = 1 + kernels::kMutantParts;
    constexpr std::int64_t kScaleBiasAndY = 3;
    Numerics numerics;
    numerics.shrink_depth =
        (problem.in_features + kernels::kMutantDepth - 1) / kernels::kMutantDepth + kTree +
        kScaleAndParts;
    numerics.expand_depth = problem.max_rank + kScaleBiasAndY;
    numerics.intermediate = Dtype::kFp32;
    numerics.summation =
        "fp32; shrink: 32 strided sums and a tree, two parts by atomics; expand: one sum";
    return numerics;
  }

  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    const PlanSizes now = sizes_of(problem.plan);
    const bool stale = fault_ == MutantFault::kStalePlan && launches_ > 0;
    const PlanSizes read = stale ? before_ : now;
    kernels::MutantLaunch launch;
    launch.fault = fault_;
    launch.number = launches_++;
    const unsigned long long recording = recording_of(static_cast<cudaStream_t>(stream.handle));
    launch.records = recording != 0;
    launch.recorded_before = launch.records && recording == recording_before_;
    recording_before_ = recording;
    launch.slots = problem.slots;
    launch.groups = read.groups;
    launch.largest_group = read.largest_group;
    launch.base_rows = problem.tokens - problem.plan.rows_with_adapter();
    // Memory that only the fault writes.
    launch.x = const_cast<void*>(operands.x);
    launch.x_elements = operand_of(problem, Role::kX).elements;
    launch.y_elements = operand_of(problem, Role::kY).elements;
    launch.scale = operands.scale;
    launch.factor = factor_by_size(problem, fault_);
    before_ = now;
    if (fault_ != MutantFault::kIdleRowsKept) {
      enqueue_zero_idle_rows(problem, operands, stream);
    }
    LORA_BENCH_CUDA_CHECK(kernels::launch_mutant(
        kernel_number(problem.dtype[Role::kX]), {has_shrink(problem.op), has_expand(problem.op)},
        shrink_params(problem, operands), expand_params(problem, operands), launch,
        static_cast<cudaStream_t>(stream.handle), other_.get()));
  }

 private:
  MutantFault fault_;
  std::string name_;
  CudaStream other_;
  mutable std::int64_t launches_ = 0;
  mutable unsigned long long recording_before_ = 0;
  mutable PlanSizes before_;
};

}  // namespace

std::unique_ptr<Backend> make_gpu_mutant(MutantFault fault, const std::string& name) {
  return std::make_unique<GpuMutant>(fault, name);
}

#else

std::unique_ptr<Backend> make_gpu_mutant(kernels::MutantFault, const std::string&) {
  throw EnvironmentError(why_no_gpu());
}

#endif
}  // namespace lora_bench
