#include "kernels/mutant/mutant.h"

#include "kernels/mutant/mutant_expand.cuh"

namespace lora_bench::kernels {
namespace {

constexpr std::int64_t kOtherStreamPause = 3000000;
constexpr unsigned kKeepBlocks = 64;

std::int64_t tiles_of(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

// Groups that the grid has: some faults take the rows without adapter for one more.
std::int64_t groups_of(const MutantLaunch& launch, bool expands) {
  const bool one_more = launch.fault == MutantFault::kNoneIsFirstAdapter ||
                        launch.fault == MutantFault::kBiasOnBaseRows ||
                        (launch.fault == MutantFault::kStaleHForBase && expands);
  if (launch.fault == MutantFault::kGridOneGroupShort) {
    return launch.groups - 1;
  }
  return launch.groups + (one_more && launch.groups > 0 && launch.base_rows > 0 ? 1 : 0);
}

std::int64_t row_tiles_of(const MutantLaunch& launch, bool expands) {
  const bool one_more = groups_of(launch, expands) > launch.groups;
  const std::int64_t rows =
      one_more && launch.base_rows > launch.largest_group ? launch.base_rows : launch.largest_group;
  switch (launch.fault) {
    case MutantFault::kGridOneTileShort:
      return tiles_of(rows, kMutantRows) - 1;
    case MutantFault::kEdgeOneRowLate:
      return tiles_of(rows + 1, kMutantRows);
    default:
      return tiles_of(rows, kMutantRows);
  }
}

dim3 grid_of(std::int64_t tiles, std::int32_t slices, std::int64_t groups) {
  return {static_cast<unsigned>(tiles), static_cast<unsigned>(slices),
          static_cast<unsigned>(groups)};
}

// Of a kernel that may begin while the launch before it still runs, and does not wait for it.
struct EarlyStart {
  EarlyStart(unsigned blocks, cudaStream_t stream) {
    link.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    link.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kMutantThreads);
    config.stream = stream;
    config.attrs = &link;
    config.numAttrs = 1;
  }

  cudaLaunchAttribute link = {};
  cudaLaunchConfig_t config = {};
};

__global__ void mutant_wait(std::int64_t nanoseconds) { mutant_delay(nanoseconds); }

cudaError_t zero(const ShrinkParams& params, const MutantLaunch& launch, cudaStream_t stream) {
  const std::int64_t items = params.slices * params.tokens * params.max_rank;
  auto recording = cudaStreamCaptureStatusNone;
  if (launch.fault == MutantFault::kZeroNotRecorded) {
    const cudaError_t result = cudaStreamIsCapturing(stream, &recording);
    if (result != cudaSuccess) {
      return result;
    }
  }
  if (items > 0 && launch.fault != MutantFault::kNotZeroed &&
      recording == cudaStreamCaptureStatusNone) {
    const std::int64_t tiles = tiles_of(items, kMutantThreads);
    const auto blocks = static_cast<unsigned>(tiles < 1024 ? tiles : 1024);
    if (launch.fault == MutantFault::kHClearedUnawaited) {
      const EarlyStart start(blocks, stream);
      return cudaLaunchKernelEx(&start.config, mutant_zero, params, launch);
    }
    mutant_zero<<<blocks, kMutantThreads, 0, stream>>>(params, launch);
  }
  return cudaGetLastError();
}

template <typename T>
cudaError_t shrink_as(const ShrinkParams& params, const MutantLaunch& launch, cudaStream_t stream) {
  const bool afterwards = launch.fault == MutantFault::kZeroedAfterwards;
  cudaError_t result = afterwards ? cudaSuccess : zero(params, launch, stream);
  const std::int64_t lane_tiles = tiles_of(params.max_rank, kMutantLanes);
  const std::int64_t tiles = kMutantParts * lane_tiles * row_tiles_of(launch, false);
  const std::int64_t groups = groups_of(launch, false);
  if (result == cudaSuccess && tiles > 0 && groups > 0 && params.slices > 0) {
    mutant_shrink<T><<<grid_of(tiles, params.slices, groups), kMutantThreads, 0, stream>>>(
        params, launch, lane_tiles);
    result = cudaGetLastError();
  }
  return result == cudaSuccess && afterwards ? zero(params, launch, stream) : result;
}

template <typename T>
cudaError_t expand_as(const ExpandParams& params, const MutantLaunch& launch, cudaStream_t stream) {
  std::int64_t widest = 0;
  for (int slice = 0; slice < params.slices; ++slice) {
    widest = params.width[slice] > widest ? params.width[slice] : widest;
  }
  const std::int64_t column_tiles = tiles_of(widest, kMutantColumns);
  const std::int64_t tiles = column_tiles * row_tiles_of(launch, true);
  const std::int64_t groups = groups_of(launch, true);
  const int times = launch.fault == MutantFault::kExpandTwice ? 2 : 1;
  for (int time = 0; time < times && tiles > 0 && groups > 0; ++time) {
    mutant_expand<T><<<grid_of(tiles, params.slices, groups), kMutantThreads, 0, stream>>>(
        params, launch, column_tiles);
  }
  return cudaGetLastError();
}

bool keeps_after(MutantFault fault) { return fault == MutantFault::kStalePlan; }
bool keeps_first(MutantFault fault) {
  return fault == MutantFault::kCapturedX || fault == MutantFault::kStaleY;
}

// `other` goes on where `stream` is now.
cudaError_t let_follow(cudaStream_t other, cudaStream_t stream) {
  cudaEvent_t here = nullptr;
  cudaError_t result = cudaEventCreateWithFlags(&here, cudaEventDisableTiming);
  if (result != cudaSuccess) {
    return result;
  }
  result = cudaEventRecord(here, stream);
  result = result == cudaSuccess ? cudaStreamWaitEvent(other, here, 0) : result;
  const cudaError_t destroyed = cudaEventDestroy(here);
  return result == cudaSuccess ? destroyed : result;
}

template <typename T>
cudaError_t launch_as(MutantOps ops, const ShrinkParams& shrink, const ExpandParams& expand,
                      const MutantLaunch& launch, cudaStream_t stream, cudaStream_t other) {
  if (launch.fault == MutantFault::kNothingLaunched ||
      (launch.fault == MutantFault::kSkippedFromThird && launch.number >= 2)) {
    return cudaSuccess;
  }
  if (keeps_first(launch.fault) && launch.number == 0) {
    mutant_keep<T><<<kKeepBlocks, kMutantThreads, 0, stream>>>(shrink, expand, launch);
  }
  if (launch.fault == MutantFault::kStartsUnawaited) {
    const EarlyStart start(kKeepBlocks, stream);
    const cudaError_t result =
        cudaLaunchKernelEx(&start.config, mutant_keep<T>, shrink, expand, launch);
    if (result != cudaSuccess) {
      return result;
    }
  }
  const bool elsewhere = launch.fault == MutantFault::kOtherStream && ops.expand;
  if (elsewhere && ops.shrink) {
    mutant_wait<<<1, 1, 0, other>>>(kOtherStreamPause);
  }
  cudaError_t result = cudaGetLastError();
  const bool kept = launch.fault == MutantFault::kHKeptInRecording && launch.recorded_before;
  if (result == cudaSuccess && ops.shrink && !(kept && ops.expand)) {
    result = shrink_as<T>(shrink, launch, elsewhere ? other : stream);
  }
  const bool left = launch.fault == MutantFault::kLeftOnOtherStream && !launch.records;
  if (result == cudaSuccess && ops.expand && left) {
    result = let_follow(other, stream);
    mutant_wait<<<1, 1, 0, other>>>(kOtherStreamPause);
  }
  if (result == cudaSuccess && ops.expand) {
    result = expand_as<T>(expand, launch, left ? other : stream);
  }
  if (result == cudaSuccess && keeps_after(launch.fault)) {
    mutant_keep<T><<<kKeepBlocks, kMutantThreads, 0, stream>>>(shrink, expand, launch);
    result = cudaGetLastError();
  }
  return result;
}

}  // namespace

cudaError_t launch_mutant(Number number, MutantOps ops, const ShrinkParams& shrink,
                          const ExpandParams& expand, const MutantLaunch& launch,
                          cudaStream_t stream, cudaStream_t other) {
  switch (number) {
    case Number::kBf16:
      return launch_as<__nv_bfloat16>(ops, shrink, expand, launch, stream, other);
    case Number::kFp16:
      return launch_as<__half>(ops, shrink, expand, launch, stream, other);
    case Number::kFp32:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace lora_bench::kernels
