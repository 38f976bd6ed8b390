#include "kernels/plan/grouping.cuh"
#include "kernels/plan/plan.h"

namespace lora_bench::kernels {
namespace {

using grouping::Place;

// Group g < slots is adapter g; group `slots` is the rows without one.
struct PlanForm {
  PlanParams params;

  static constexpr bool kUnits = false;
  __device__ int groups() const { return params.slots + 1; }
  __device__ std::int64_t rows() const { return params.tokens; }
  __device__ int group_of(std::int64_t row) const {
    const std::int32_t id = params.adapter_of_token[row];
    return id >= 0 && id < params.slots ? id : params.slots;
  }
  __device__ void begin() const {}
  // A unit is an active group.
  __device__ std::int32_t units(int group, std::int32_t rows) const {
    return group < params.slots && rows > 0 ? 1 : 0;
  }
  // The first block writes the list of groups.
  __device__ void list(const Place&, int group, std::int32_t rows, std::int32_t begin,
                       std::int32_t entry) const {
    if (blockIdx.x == 0 && rows > 0 && group < params.slots) {
      params.active_ids[entry] = group;
      params.counts[entry] = rows;
      params.group_starts[entry] = begin;
    }
  }
  // Entries after the active groups. The rows without an adapter follow those of the last group.
  __device__ void finish(const Place& place, std::int32_t active) const {
    if (blockIdx.x != 0) {
      return;
    }
    const std::int32_t rows_with_adapter = params.tokens - place.all[params.slots];
    for (int entry = active + static_cast<int>(threadIdx.x); entry <= params.slots;
         entry += static_cast<int>(blockDim.x)) {
      params.active_ids[entry] = -1;
      params.counts[entry] = 0;
      params.group_starts[entry] = rows_with_adapter;
    }
    if (threadIdx.x == 0) {
      params.group_starts[params.slots + 1] = rows_with_adapter;
      *params.active = active;
    }
  }
  __device__ void put(const Place&, std::int64_t row, int, std::int32_t to) const {
    params.token_order[to] = static_cast<std::int32_t>(row);
  }
};

}  // namespace

cudaError_t launch_plan(const PlanParams& params, const PlanTuning& tuning, cudaStream_t stream) {
  return grouping::launch_grouping(PlanForm{params}, tuning, plan_bits(params.slots), params.tokens,
                                   stream);
}

}  // namespace lora_bench::kernels
