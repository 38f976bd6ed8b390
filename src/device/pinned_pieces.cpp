#ifdef LORA_BENCH_HAVE_CUDA

#include "device/pinned_pieces.h"

#include <algorithm>
#include <cstddef>

#include "core/bytes.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;

std::byte* at(void* start, std::int64_t offset) { return static_cast<std::byte*>(start) + offset; }
const std::byte* at(const void* start, std::int64_t offset) {
  return static_cast<const std::byte*>(start) + offset;
}

std::int64_t piece_from(std::int64_t offset, std::int64_t bytes) {
  return std::min(kPieceBytes, bytes - offset);
}

}  // namespace

PinnedPieces& PinnedPieces::of_process() {
  static PinnedPieces pieces;
  return pieces;
}

PinnedPieces::PinnedPieces() {
  for (void*& piece : pieces_) {
    if (cudaHostAlloc(&piece, static_cast<std::size_t>(kPieceBytes), cudaHostAllocPortable) !=
        cudaSuccess) {
      cudaGetLastError();  // copies are slower then, no more
      piece = nullptr;
    }
  }
}

bool PinnedPieces::copy_in(void* to, const void* from, std::int64_t bytes, cudaStream_t stream,
                           const Events& events) {
  const std::unique_lock lock(in_use_, std::try_to_lock);
  if (!lock || pieces_[0] == nullptr || pieces_[1] == nullptr) {
    return false;
  }
  std::size_t turn = 0;
  for (std::int64_t done = 0; done < bytes; done += kPieceBytes, ++turn) {
    const std::int64_t count = piece_from(done, bytes);
    void* const piece = pieces_[turn % 2];
    if (turn >= 2) {
      LORA_BENCH_CUDA_CHECK(cudaEventSynchronize(events[turn % 2].get()));
    }
    copy_bytes(piece, at(from, done), count);
    LORA_BENCH_CUDA_CHECK(cudaMemcpyAsync(at(to, done), piece, static_cast<std::size_t>(count),
                                          cudaMemcpyHostToDevice, stream));
    LORA_BENCH_CUDA_CHECK(cudaEventRecord(events[turn % 2].get(), stream));
  }
  LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream));
  return true;
}

bool PinnedPieces::copy_out(void* to, const void* from, std::int64_t bytes, cudaStream_t stream,
                            const Events& events) {
  const std::unique_lock lock(in_use_, std::try_to_lock);
  if (!lock || pieces_[0] == nullptr || pieces_[1] == nullptr) {
    return false;
  }
  const auto bring = [&](std::int64_t offset, std::size_t turn) {
    if (offset < bytes) {
      LORA_BENCH_CUDA_CHECK(cudaMemcpyAsync(pieces_[turn % 2], at(from, offset),
                                            static_cast<std::size_t>(piece_from(offset, bytes)),
                                            cudaMemcpyDeviceToHost, stream));
      LORA_BENCH_CUDA_CHECK(cudaEventRecord(events[turn % 2].get(), stream));
    }
  };
  bring(0, 0);
  std::size_t turn = 0;
  for (std::int64_t done = 0; done < bytes; done += kPieceBytes, ++turn) {
    bring(done + kPieceBytes, turn + 1);
    LORA_BENCH_CUDA_CHECK(cudaEventSynchronize(events[turn % 2].get()));
    copy_bytes(at(to, done), pieces_[turn % 2], piece_from(done, bytes));
  }
  LORA_BENCH_CUDA_CHECK(cudaStreamSynchronize(stream));
  return true;
}

PinnedRange::PinnedRange(void* start, std::int64_t bytes) : start_(start) {
  if (cudaHostRegister(start, static_cast<std::size_t>(bytes), cudaHostRegisterPortable) !=
      cudaSuccess) {
    cudaGetLastError();
    start_ = nullptr;
  }
}

PinnedRange::~PinnedRange() {
  if (start_ != nullptr) {
    LORA_BENCH_CUDA_REPORT(cudaHostUnregister(start_));
  }
}

}  // namespace lora_bench

#endif
