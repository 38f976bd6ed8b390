#include "kernels/idle/idle.h"

#include <algorithm>

#include "kernels/divide_up.h"

namespace lora_bench::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 32;
constexpr int kRowsOfBlock = kThreads / kLanes;
constexpr std::int64_t kVectorBytes = 16;
// Bytes of a row that a warp zeroes before it goes on to another row.
constexpr std::int64_t kPieceBytes = 16 * kLanes * kVectorBytes;

// A warp owns one piece of one row: 16 bytes a lane where they begin on 16, numbers before and
// behind. Zero has the same bits in every dtype. Bound: memory, y of the idle rows written once.
template <typename Number>
__device__ void zero_piece(Number* first, std::int64_t count, int lane) {
  constexpr auto kOfVector = static_cast<std::int64_t>(kVectorBytes / sizeof(Number));
  const auto misplaced =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(first) % kVectorBytes);
  const std::int64_t before =
      misplaced == 0 ? 0 : (kVectorBytes - misplaced) / static_cast<std::int64_t>(sizeof(Number));
  const std::int64_t head = before < count ? before : count;
  const std::int64_t vectors = (count - head) / kOfVector;
  for (std::int64_t i = lane; i < head; i += kLanes) {
    first[i] = 0;
  }
  for (std::int64_t i = lane; i < vectors; i += kLanes) {
    reinterpret_cast<uint4*>(first + head)[i] = make_uint4(0, 0, 0, 0);
  }
  for (std::int64_t i = head + vectors * kOfVector + lane; i < count; i += kLanes) {
    first[i] = 0;
  }
}

template <typename Number>
__global__ void zero_idle_rows(const __grid_constant__ ExpandParams params) {
  constexpr auto kPiece = static_cast<std::int64_t>(kPieceBytes / sizeof(Number));
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t rows = std::int64_t{gridDim.x} * kRowsOfBlock;
  for (std::int64_t row = std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kLanes;
       row < params.tokens; row += rows) {
    const std::int32_t adapter = params.adapter_of_token[row];
    if (adapter >= 0 && (params.rank[adapter] > 0 || params.rank0_bias)) {
      continue;
    }
    Number* y = static_cast<Number*>(params.y) + row * params.y_stride + params.first_column;
    for (std::int64_t first = std::int64_t{blockIdx.y} * kPiece; first < params.columns;
         first += std::int64_t{gridDim.y} * kPiece) {
      const std::int64_t left = params.columns - first;
      zero_piece(y + first, left < kPiece ? left : kPiece, lane);
    }
  }
}

}  // namespace

cudaError_t launch_zero_idle_rows(const ExpandParams& params, std::int64_t element_bytes,
                                  cudaStream_t stream) {
  constexpr std::int64_t kMostBlocks = 1 << 14;
  constexpr std::int64_t kMostPieces = 64;
  if (params.tokens == 0 || params.columns == 0) {
    return cudaSuccess;
  }
  const dim3 grid(
      static_cast<unsigned>(std::min(divide_up(params.tokens, kRowsOfBlock), kMostBlocks)),
      static_cast<unsigned>(
          std::min(divide_up(params.columns * element_bytes, kPieceBytes), kMostPieces)));
  if (element_bytes == 4) {
    zero_idle_rows<std::uint32_t><<<grid, kThreads, 0, stream>>>(params);
  } else {
    zero_idle_rows<std::uint16_t><<<grid, kThreads, 0, stream>>>(params);
  }
  return cudaGetLastError();
}

}  // namespace lora_bench::kernels
