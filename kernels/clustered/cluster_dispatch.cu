#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "kernels/chains.h"
#include "kernels/clustered/clustered.h"
#include "kernels/clustered/clustered_plan.h"
#include "kernels/clustered/resident.h"
#include "kernels/clustered/resident_plan.h"
#include "kernels/divide_up.h"

namespace lora_bench::kernels {

// Instantiated in clustered_<dtype>.cu, clustered_eight_<dtype>.cu and those of `resident` alike.
template <typename T, typename H>
cudaError_t launch_clustered_as(const ShrinkParams& shrink, const ExpandParams& expand,
                                const ClusteredTuning& tuning, const ClusteredPlan& plan,
                                cudaStream_t stream);
template <typename T, typename H>
cudaError_t launch_clustered_eight_as(const ShrinkParams& shrink, const ExpandParams& expand,
                                      const ClusteredTuning& tuning, const EightBitsPlan& plan,
                                      cudaStream_t stream);
template <typename T, typename H>
cudaError_t launch_resident_as(const ShrinkParams& shrink, const ExpandParams& expand,
                               const ResidentTuning& tuning, const ResidentPlan& plan,
                               cudaStream_t stream);
template <typename T, typename H>
cudaError_t launch_resident_eight_as(const ShrinkParams& shrink, const ExpandParams& expand,
                                     const ResidentTuning& tuning, const ResidentEightPlan& plan,
                                     cudaStream_t stream);

namespace {

// launch(T{}, H{}) of the types that the two numbers name.
template <typename Tuning, typename Launch>
cudaError_t launch_in_types(Number number, Number intermediate, const Tuning& tuning,
                            const Launch& launch) {
  if (!tuning.fits) {
    return cudaErrorInvalidConfiguration;
  }
  if (tuning.tiles == 0) {
    return cudaSuccess;
  }
  const bool wide = intermediate == Number::kFp32;
  if (!wide && intermediate != number) {
    return cudaErrorInvalidValue;
  }
  switch (number) {
    case Number::kBf16:
      return wide ? launch(__nv_bfloat16{}, float{}) : launch(__nv_bfloat16{}, __nv_bfloat16{});
    case Number::kFp16:
      return wide ? launch(__half{}, float{}) : launch(__half{}, __half{});
    default:
      return cudaErrorInvalidValue;
  }
}

// Units of so many columns, over all slices, shared by the blocks of all groups.
template <typename Plan, typename Tuning>
void share_units(Plan& plan, const Tuning& tuning, const ExpandParams& expand,
                 std::int64_t columns) {
  std::int64_t units = 0;
  for (int slice = 0; slice < expand.slices; ++slice) {
    units += divide_up(expand.width[slice], columns);
  }
  const int shares = tuning.cluster * tuning.groups;
  if constexpr (requires { plan.units; }) {
    plan.units = static_cast<std::int32_t>(units);
    plan.most_groups = tuning.groups;
    plan.most_shared = tuning.most_shared;
  }
  plan.units_each = static_cast<std::int32_t>(units / shares);
  plan.units_more = static_cast<std::int32_t>(units % shares);
}

ClusteredPlan clustered_plan(const ShrinkParams& shrink, const ExpandParams& expand,
                             const ClusteredTuning& tuning, bool linked) {
  ClusteredPlan plan;
  plan.cluster = tuning.cluster;
  plan.chain = static_cast<std::int32_t>(chain_length(shrink.in_features));
  plan.lane_pitch = static_cast<std::int32_t>(divide_up(shrink.max_rank, 8) * 8);
  plan.h_pitch = static_cast<std::int32_t>(clustered_sums_pitch(shrink.slices, shrink.max_rank));
  plan.owned = tuning.owned;
  plan.sums_pitch = tuning.owned > 0
                        ? static_cast<std::int32_t>(clustered_sums_pitch(tuning.owned, 8))
                        : plan.h_pitch;
  plan.slots = tuning.slots;
  plan.slot_bytes = tuning.slot_bytes;
  plan.piece = tuning.piece;
  plan.piece_pitch = tuning.piece_pitch;
  plan.hidden_bytes = tuning.hidden_bytes;
  plan.x_bytes = tuning.x_bytes;
  share_units(plan, tuning, expand, tuning.columns);
  plan.linked = linked;
  return plan;
}

ResidentPlan resident_plan(const ShrinkParams& shrink, const ExpandParams& expand,
                           const ResidentTuning& tuning, bool linked) {
  ResidentPlan plan;
  plan.cluster = tuning.cluster;
  plan.chain = static_cast<std::int32_t>(chain_length(shrink.in_features));
  plan.lane_pitch = tuning.lane_pitch;
  plan.sums_pitch = static_cast<std::int32_t>(shrink.slices * divide_up(shrink.max_rank, 8) * 8);
  plan.sums = tuning.sums;
  plan.x = tuning.x;
  plan.x_rows = tuning.x_rows;
  plan.a = tuning.a;
  plan.b = tuning.b;
  share_units(plan, tuning, expand, kResidentColumns);
  plan.linked = linked;
  return plan;
}

}  // namespace

cudaError_t launch_clustered(Number number, Number intermediate, const ShrinkParams& shrink,
                             const ExpandParams& expand, const ClusteredTuning& tuning, bool linked,
                             cudaStream_t stream) {
  const ClusteredPlan plan = clustered_plan(shrink, expand, tuning, linked);
  return launch_in_types(number, intermediate, tuning, [&](auto t, auto h) {
    return launch_clustered_as<decltype(t), decltype(h)>(shrink, expand, tuning, plan, stream);
  });
}

cudaError_t launch_clustered_eight(Number rows, Number intermediate, const ShrinkParams& shrink,
                                   const ExpandParams& expand, const WeightScales& scales,
                                   const ClusteredTuning& tuning, bool linked,
                                   cudaStream_t stream) {
  const EightBitsPlan plan{clustered_plan(shrink, expand, tuning, linked), scales};
  return launch_in_types(rows, intermediate, tuning, [&](auto t, auto h) {
    return launch_clustered_eight_as<decltype(t), decltype(h)>(shrink, expand, tuning, plan,
                                                               stream);
  });
}

cudaError_t launch_resident(Number number, Number intermediate, const ShrinkParams& shrink,
                            const ExpandParams& expand, const ResidentTuning& tuning, bool linked,
                            cudaStream_t stream) {
  const ResidentPlan plan = resident_plan(shrink, expand, tuning, linked);
  return launch_in_types(number, intermediate, tuning, [&](auto t, auto h) {
    return launch_resident_as<decltype(t), decltype(h)>(shrink, expand, tuning, plan, stream);
  });
}

cudaError_t launch_resident_eight(Number rows, Number intermediate, const ShrinkParams& shrink,
                                  const ExpandParams& expand, const WeightScales& scales,
                                  const ResidentTuning& tuning, bool linked, cudaStream_t stream) {
  const ResidentEightPlan plan{resident_plan(shrink, expand, tuning, linked), tuning.a_scales,
                               scales};
  return launch_in_types(rows, intermediate, tuning, [&](auto t, auto h) {
    return launch_resident_eight_as<decltype(t), decltype(h)>(shrink, expand, tuning, plan, stream);
  });
}

}  // namespace lora_bench::kernels
