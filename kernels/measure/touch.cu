#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/link.cuh"
#include "kernels/measure/probes.h"

namespace lora_bench::kernels {
namespace {

constexpr int kLanes = 32;
constexpr int kInFlight = 8;              // vectors that a lane has under way
constexpr unsigned kSigns = 0x80008000U;  // turned in y, so that its numbers stay finite

__host__ __device__ constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Where a tile of kLanes * kInFlight vectors lies, in bytes from `base`. Of each `period` only the
// bytes below `used` are touched; period == 0: all are.
struct Tile {
  char* base;
  std::uint32_t first, end, period, used;
};

template <typename Vector>
constexpr std::uint32_t kTileBytes = kLanes* kInFlight * sizeof(Vector);

__device__ bool touched(const Tile& tile, std::uint32_t at) {
  return at < tile.end && (tile.period == 0 || at % tile.period < tile.used);
}

__device__ unsigned mix(unsigned short value) { return value; }
__device__ unsigned mix(unsigned value) { return value; }
__device__ unsigned mix(uint2 value) { return value.x ^ value.y; }
__device__ unsigned mix(uint4 value) { return value.x ^ value.y ^ value.z ^ value.w; }
__device__ unsigned short turned(unsigned short value) { return value ^ 0x8000U; }
__device__ unsigned turned(unsigned value) { return value ^ kSigns; }
__device__ uint2 turned(uint2 value) { return {value.x ^ kSigns, value.y ^ kSigns}; }
__device__ uint4 turned(uint4 value) {
  return {value.x ^ kSigns, value.y ^ kSigns, value.z ^ kSigns, value.w ^ kSigns};
}

// Neighbouring lanes touch neighbouring vectors. Weights pass once and must not push out of the
// cache what the next launch finds there.
template <typename Vector>
__device__ unsigned touch_tile(const Tile& tile, bool passes, bool reads, bool writes) {
  Vector loaded[kInFlight] = {};
  const std::uint32_t lane = threadIdx.x % kLanes;
#pragma unroll
  for (int j = 0; j < kInFlight; ++j) {
    const std::uint32_t at = tile.first + (j * kLanes + lane) * std::uint32_t{sizeof(Vector)};
    if (reads && touched(tile, at)) {
      const auto* from = reinterpret_cast<const Vector*>(tile.base + at);
      loaded[j] = passes ? __ldcs(from) : *from;
    }
  }
  unsigned mixed = 0;
#pragma unroll
  for (int j = 0; j < kInFlight; ++j) {
    const std::uint32_t at = tile.first + (j * kLanes + lane) * std::uint32_t{sizeof(Vector)};
    if (writes && touched(tile, at)) {
      *reinterpret_cast<Vector*>(tile.base + at) = turned(loaded[j]);
    }
    mixed ^= mix(loaded[j]);
  }
  return mixed;
}

__device__ char* address(const void* base, std::int64_t bytes) {
  return static_cast<char*>(const_cast<void*>(base)) + bytes;
}

__device__ std::int64_t rank_of(const TouchParams& params, std::int64_t slot) {
  return params.uniform_rank > 0 ? params.uniform_rank : params.rank[slot];
}

// The tile of the weights with this number: those of a part follow those of the part before, and in
// a part those of a group those of the group before.
template <typename Vector>
__device__ Tile weights_of(const TouchParams& params, std::int64_t tile) {
  for (int part = 0; part < params.parts; ++part) {
    const TouchParams::Part& weights = params.part[part];
    const std::int64_t tiles = ceil_div(weights.slot_bytes, kTileBytes<Vector>);
    if (tile >= tiles * params.active) {
      tile -= tiles * params.active;
      continue;
    }
    const std::int64_t group = tile / tiles;
    const std::int64_t slot = params.active_ids[group];
    const auto first = static_cast<std::uint32_t>((tile - group * tiles) * kTileBytes<Vector>);
    auto whole = static_cast<std::uint32_t>(weights.slot_bytes);
    auto period = static_cast<std::uint32_t>(weights.period_bytes);
    std::uint32_t used = 0;
    if (weights.lane_bytes > 0) {
      used = static_cast<std::uint32_t>(weights.lane_bytes * rank_of(params, slot));
      whole = period == 0 ? used : whole;
      period = used == period ? 0 : period;
    }
    return {address(weights.data, slot * weights.slot_bytes), first,
            min(first + kTileBytes<Vector>, whole), period, used};
  }
  return {};
}

template <typename Vector>
__device__ Tile row_of(const TouchParams& params, const TouchParams::Rows& rows,
                       std::int64_t tile) {
  const std::int64_t tiles = ceil_div(rows.row_bytes, kTileBytes<Vector>);
  const std::int64_t row = tile / tiles;
  const std::int64_t token = params.token_order[row];
  const auto first = static_cast<std::uint32_t>((tile - row * tiles) * kTileBytes<Vector>);
  auto end = static_cast<std::uint32_t>(rows.row_bytes);
  if (params.uniform_rank == 0 || rows.lane_bytes > 0) {
    const std::int64_t rank = rank_of(params, params.adapter_of_token[token]);
    end = rows.lane_bytes > 0 ? static_cast<std::uint32_t>(rows.lane_bytes * rank)
                              : (rank == 0 ? 0 : end);
  }
  return {address(rows.data, token * rows.stride_bytes), first,
          min(first + kTileBytes<Vector>, end), 0, 0};
}

// The tile of the rows with this number: those of x, then of h, then of y.
template <typename Vector>
__device__ unsigned touch_rows(const TouchParams& params, std::int64_t rows, std::int64_t tile) {
  for (int operand = 0; operand < params.operands; ++operand) {
    const TouchParams::Rows& of = params.rows[operand];
    const std::int64_t tiles = rows * ceil_div(of.row_bytes, kTileBytes<Vector>);
    if (tile < tiles) {
      const Tile at = row_of<Vector>(params, of, tile);
      await_previous_kernel();
      return touch_tile<Vector>(at, false, of.reads, of.writes);
    }
    tile -= tiles;
  }
  return 0;
}

// Each warp takes one tile at a time; the warps of the grid take neighbouring ones, tiles of
// weights and of rows in turn, so that memory and cache work at the same time. Weights are touched
// at once, since no launch before this one writes them, rows when the launch before has ended. In
// every second launch each warp goes through its tiles backwards: what exceeds the cache is then
// not what the launch starts with. Bound: memory, or the L2.
template <typename Vector>
__global__ void touch(const __grid_constant__ TouchParams params, std::int64_t weight_tiles,
                      std::int64_t tiles_of_all_tokens) {
  let_next_kernel_start();
  const std::int64_t warps = std::int64_t{gridDim.x} * blockDim.x / kLanes;
  const std::int64_t first = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kLanes;
  const std::int64_t rows = params.active == 0 ? 0 : params.group_starts[params.active];
  const std::int64_t row_tiles =
      params.tokens == 0 ? 0 : tiles_of_all_tokens / params.tokens * rows;
  const std::int64_t all = weight_tiles + row_tiles;
  const double share = all == 0 ? 0 : static_cast<double>(row_tiles) / static_cast<double>(all);
  unsigned mixed = 0;
  const std::int64_t turns = first < all ? (all - 1 - first) / warps + 1 : 0;
  for (std::int64_t step = 0; step < turns; ++step) {
    const std::int64_t turn = first + (params.backwards ? turns - 1 - step : step) * warps;
    // Of the first `turn` tiles so many are rows; the last turn is none too many.
    const auto before = static_cast<std::int64_t>(static_cast<double>(turn) * share);
    const auto after = turn + 1 == all
                           ? row_tiles
                           : static_cast<std::int64_t>(static_cast<double>(turn + 1) * share);
    if (after > before) {
      mixed ^= touch_rows<Vector>(params, rows, before);
    } else {
      mixed ^= touch_tile<Vector>(weights_of<Vector>(params, turn - before), true, true, false);
    }
  }
  await_previous_kernel();
  if (mixed == 0x5EED1E55U) {
    *params.sink = mixed;
  }
}

template <typename Vector>
cudaError_t launch(const TouchParams& params, int multiprocessors, cudaStream_t stream) {
  constexpr unsigned kThreads = 256;
  constexpr std::int64_t kWarps = kThreads / kLanes;
  std::int64_t weight_tiles = 0;
  for (int part = 0; part < params.parts; ++part) {
    weight_tiles += params.active * ceil_div(params.part[part].slot_bytes, kTileBytes<Vector>);
  }
  std::int64_t row_tiles = 0;
  for (int operand = 0; operand < params.operands; ++operand) {
    row_tiles += params.tokens * ceil_div(params.rows[operand].row_bytes, kTileBytes<Vector>);
  }
  const std::int64_t blocks = std::clamp<std::int64_t>(ceil_div(weight_tiles + row_tiles, kWarps),
                                                       1, std::int64_t{multiprocessors} * 8);
  cudaFuncAttributes code = {};
  if (const cudaError_t error = cudaFuncGetAttributes(&code, touch<Vector>); error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute link = {};
  link.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  link.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &link;
  config.numAttrs = code.ptxVersion >= 90 ? 1U : 0U;  // older code waits for nothing
  return cudaLaunchKernelEx(&config, touch<Vector>, params, weight_tiles, row_tiles);
}

}  // namespace

cudaError_t launch_touch(const TouchParams& params, int multiprocessors, cudaStream_t stream) {
  // Of addresses and sizes. Above the rank, where nothing is owned, a vector may reach further.
  std::int64_t alignment = 16;
  const auto align = [&](std::int64_t bytes) { alignment = std::gcd(alignment, bytes); };
  for (int part = 0; part < params.parts; ++part) {
    align(params.part[part].slot_bytes);
    align(params.part[part].period_bytes);
  }
  for (int operand = 0; operand < params.operands; ++operand) {
    align(params.rows[operand].row_bytes);
    align(params.rows[operand].stride_bytes);
    align(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(params.rows[operand].data) %
                                    16));
  }
  switch (alignment) {
    case 16:
      return launch<uint4>(params, multiprocessors, stream);
    case 8:
      return launch<uint2>(params, multiprocessors, stream);
    case 4:
      return launch<unsigned>(params, multiprocessors, stream);
    default:
      return launch<unsigned short>(params, multiprocessors, stream);
  }
}

}  // namespace lora_bench::kernels
