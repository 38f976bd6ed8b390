#include "ops/kernel_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/error.h"

namespace lora_bench {
namespace {

// Beyond the plain op.
constexpr Semantics kFastKernelsTake(Semantic::kZeroedIdleRows, Semantic::kBiasOfSomeSlices);

bool has_kernel(Dtype dtype) {
  return dtype == Dtype::kFp32 || dtype == Dtype::kBf16 || dtype == Dtype::kFp16;
}

void require_few_slices(const Problem& problem) {
  if (problem.slices() > kernels::kMaxSlices) {
    throw CaseError(kernels_take(problem).why_not);
  }
}

}  // namespace

kernels::Number kernel_number(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return kernels::Number::kFp32;
    case Dtype::kBf16:
      return kernels::Number::kBf16;
    case Dtype::kFp16:
      return kernels::Number::kFp16;
    default:
      throw CaseError(fmt::format("no kernel takes {}", name(dtype)));
  }
}

kernels::WeightNumber weight_number(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return kernels::WeightNumber::kFp32;
    case Dtype::kBf16:
      return kernels::WeightNumber::kBf16;
    case Dtype::kFp16:
      return kernels::WeightNumber::kFp16;
    case Dtype::kE4m3:
      return kernels::WeightNumber::kE4m3;
    case Dtype::kE5m2:
      return kernels::WeightNumber::kE5m2;
  }
  throw std::logic_error("dtype outside the enumeration");
}

Support kernels_take(const Problem& problem) {
  if (const Support semantics = takes_semantics(problem, kAllSemantics); !semantics.yes) {
    return semantics;
  }
  for (std::size_t role = 0; role < problem.dtype.of_role.size(); ++role) {
    const Dtype dtype = problem.dtype.of_role[role];
    if (!has_kernel(dtype) && !problem.has_scales(static_cast<Role>(role))) {
      return {false, fmt::format("no kernel takes {}: fp32, bf16, fp16", name(dtype))};
    }
  }
  const Dtype of_rows = problem.dtype[problem.has_scales(Role::kX) ? Role::kY : Role::kX];
  if (problem.dtype[Role::kH] != Dtype::kFp32 && problem.dtype[Role::kH] != of_rows &&
      !problem.has_scaled_h()) {
    return {false, fmt::format("an intermediate of {} with {} operands: fp32 or the same dtype",
                               name(problem.dtype[Role::kH]), name(of_rows))};
  }
  if (problem.slices() > kernels::kMaxSlices) {
    return {false, fmt::format("{} slices: at most {}", problem.slices(), kernels::kMaxSlices)};
  }
  return {};
}

Support fast_kernels_take(const Problem& problem, Semantics also) {
  Semantics taken = kFastKernelsTake;
  taken.bits |= also.bits;
  const Support semantics = takes_semantics(problem, taken);
  return semantics.yes ? kernels_take(problem) : semantics;
}

std::int64_t launched_groups(const Problem& problem) {
  return problem.plan_form == PlanForm::kSorted ? problem.plan.active() : problem.groups();
}

bool serves_any_batch(const Problem& problem) {
  return problem.plan_form != PlanForm::kSorted && problem.plan_grid == PlanGrid::kSlots &&
         problem.tokens > 0;
}

Support tensor_cores_take(const Problem& problem, const DeviceFacts& device, Semantics also) {
  if (problem.dtype[Role::kX] == Dtype::kFp32) {
    return {false, "fp32 operands do not go to the tensor cores: bf16, fp16"};
  }
  if (device.compute_capability < 80) {
    return {false, fmt::format("needs compute capability 8.0, this device has {}.{}",
                               device.compute_capability / 10, device.compute_capability % 10)};
  }
  return fast_kernels_take(problem, also);
}

namespace {

// What both ops take alike.
template <typename Params>
void add_batch(Params& params, const Problem& problem, const Operands& operands) {
  require_few_slices(problem);
  params.h = operands.h;
  params.adapter_of_token = operands.adapter_of_token;
  params.token_order = operands.token_order;
  params.active_ids = operands.active_ids;
  params.group_starts = operands.group_starts;
  params.rank = operands.rank;
  params.tokens = problem.tokens;
  params.max_rank = problem.max_rank;
  params.slices = static_cast<std::int32_t>(problem.slices());
  params.active = static_cast<std::int32_t>(problem.groups());
}

}  // namespace

kernels::ShrinkParams shrink_params(const Problem& problem, const Operands& operands) {
  kernels::ShrinkParams params;
  add_batch(params, problem, operands);
  params.x = operands.x;
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    params.a[slice] = operands.a[slice];
  }
  params.scale = problem.scale_at == ScaleAt::kShrink ? operands.scale : nullptr;
  params.token_of_row = operands.token_of_row;
  params.adds = problem.adds_to_h();
  params.in_features = problem.in_features;
  params.x_stride = problem.x_stride;
  params.x_slice_stride = problem.own_inputs() ? problem.tokens * problem.x_stride : 0;
  return params;
}

kernels::ExpandParams expand_params(const Problem& problem, const Operands& operands) {
  kernels::ExpandParams params;
  add_batch(params, problem, operands);
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    params.b[slice] = operands.b[slice];
    const bool biased = problem.has_bias(static_cast<std::int64_t>(slice));
    params.bias[slice] = biased ? operands.bias[slice] : nullptr;
    params.width[slice] = problem.widths[slice];
    params.columns += problem.widths[slice];
  }
  params.y = operands.y;
  params.scale = problem.scale_at == ScaleAt::kExpand ? operands.scale : nullptr;
  params.factor = operands.factor;
  params.y_stride = problem.y_stride;
  params.first_column = problem.offset_start;
  params.add_inputs = problem.add_inputs;
  params.rank0_bias = problem.biases_rank0();
  return params;
}

kernels::WeightScales weight_scales(const Problem& problem, const Operands& operands) {
  require_few_slices(problem);
  kernels::WeightScales scales;
  scales.of_rows = problem.weights_scale == WeightsScale::kChannel;
  scales.e5m2 = problem.dtype[Role::kA] == Dtype::kE5m2;
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    scales.a[slice] = static_cast<const float*>(operands.a_scale[slice]);
    scales.b[slice] = static_cast<const float*>(operands.b_scale[slice]);
  }
  return scales;
}

namespace {

constexpr std::int64_t kVectorBytes = 16;

bool whole(std::int64_t bytes) { return bytes % kVectorBytes == 0; }

bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kVectorBytes == 0;
}

}  // namespace

bool reads_vectors(const kernels::ShrinkParams& params, std::int64_t element_bytes) {
  bool all = aligned(params.x) && whole(params.x_stride * element_bytes) &&
             whole(params.in_features * element_bytes);
  for (int slice = 0; slice < params.slices; ++slice) {
    all = all && aligned(params.a[slice]);
  }
  return all;
}

bool reads_vectors(const kernels::ExpandParams& params, std::int64_t element_bytes,
                   std::int64_t h_bytes) {
  bool all = aligned(params.h) && whole(params.max_rank * h_bytes) &&
             whole(params.max_rank * element_bytes);
  for (int slice = 0; slice < params.slices; ++slice) {
    all = all && aligned(params.b[slice]);
  }
  return all;
}

bool has_vector_y(const kernels::ExpandParams& params, std::int64_t element_bytes) {
  bool all = aligned(params.y) && whole(params.y_stride * element_bytes) &&
             whole(params.first_column * element_bytes);
  for (int slice = 0; slice < params.slices; ++slice) {
    all = all && whole(params.width[slice] * element_bytes);
  }
  return all;
}

bool copies_in_bulk(const kernels::ShrinkParams& shrink, const kernels::ExpandParams& expand,
                    std::int64_t element_bytes, std::int64_t weight_bytes) {
  // Threads read four lanes of B.
  bool all = reads_vectors(shrink, element_bytes) && whole(shrink.in_features * weight_bytes) &&
             expand.max_rank % 4 == 0;
  for (int slice = 0; slice < expand.slices; ++slice) {
    all = all && aligned(expand.b[slice]);
  }
  return all && has_vector_y(expand, element_bytes);
}

bool copies_in_bulk(const kernels::WeightScales& scales) {
  return !scales.of_rows || std::all_of(std::begin(scales.b), std::end(scales.b), aligned);
}

bool panel_reads_eight_bits(const Problem& problem, const Operands& operands) {
  const kernels::WeightScales scales = weight_scales(problem, operands);
  const bool scales_read =
      copies_in_bulk(scales) &&
      (!scales.of_rows || std::all_of(std::begin(scales.a), std::end(scales.a), aligned));
  return scales_read &&
         reads_vectors(shrink_params(problem, operands), size_bytes(problem.dtype[Role::kX])) &&
         expands_in_vectors(expand_params(problem, operands), size_bytes(problem.dtype_of_cast()));
}

bool expands_in_vectors(const kernels::ExpandParams& params, std::int64_t element_bytes) {
  bool all = has_vector_y(params, element_bytes) && whole(2 * params.max_rank * element_bytes);
  for (int slice = 0; slice < params.slices; ++slice) {
    // A bias has rows as long as the slices of y are wide.
    all = all && aligned(params.b[slice]) && aligned(params.bias[slice]);
  }
  return all;
}

}  // namespace lora_bench
