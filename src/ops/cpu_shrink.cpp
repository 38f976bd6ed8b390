#include <algorithm>
#include <vector>

#include "ops/cpu_products.h"
#include "ops/cpu_scratch.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kStep = 512;  // of K at a time: what is decoded stays in the nearest caches

const void* element(Dtype dtype, const void* from, std::int64_t index) {
  return static_cast<const char*>(from) + index * size_bytes(dtype);
}

struct Lane {
  std::int64_t slice = 0, lane = 0;
};

class ShrinkItem {
 public:
  ShrinkItem(const CpuLaunch& launch, const CpuItem& item)
      : launch_(launch),
        item_(item),
        problem_(launch.problem),
        rank_(launch.operands.rank[item.slot]) {}

  void run() {
    reserve();
    for (std::int64_t first = 0; first < problem_.in_features; first += kStep) {
      const std::int64_t count = std::min(kStep, problem_.in_features - first);
      decode(first, count);
      const std::int64_t width = launch_.kernels.width;
      multiply((count + width - 1) / width * width);
    }
    for (std::int64_t row = 0; row < item_.rows; ++row) {
      write_row(row);
    }
  }

 private:
  [[nodiscard]] Lane lane_of(std::int64_t index) const {
    const std::int64_t flat = item_.first_column + index;
    return {launch_.slices.live[static_cast<std::size_t>(flat / rank_)], flat % rank_};
  }

  [[nodiscard]] std::int64_t token_of(std::int64_t row) const {
    return launch_.operands.token_order[item_.first_row + row];
  }

  void reserve() {
    thread_local CpuScratch x;
    thread_local CpuScratch a;
    thread_local CpuScratch partials;
    x_ = x.reserve(item_.rows * kStep);
    a_ = a.reserve(item_.columns * kStep);
    const std::int64_t count = item_.rows * item_.columns * launch_.kernels.width;
    partials_ = partials.reserve(count);
    std::fill_n(partials_, count, 0.0F);
  }

  void decode(std::int64_t first, std::int64_t count) {
    const Dtype dtype = problem_.dtype;
    for (std::int64_t row = 0; row < item_.rows; ++row) {
      const std::int64_t at = token_of(row) * problem_.x_stride + first;
      launch_.kernels.decode(dtype, element(dtype, launch_.operands.x, at), count,
                             x_ + row * kStep);
    }
    for (std::int64_t index = 0; index < item_.columns; ++index) {
      const Lane lane = lane_of(index);
      const std::int64_t row_of_a = item_.slot * problem_.max_rank + lane.lane;
      const void* a = launch_.operands.a[static_cast<std::size_t>(lane.slice)];
      launch_.kernels.decode(dtype, element(dtype, a, row_of_a * problem_.in_features + first),
                             count, a_ + index * kStep);
    }
  }

  void multiply(std::int64_t k) {
    const CpuKernels& kernels = launch_.kernels;
    const std::int64_t stride = item_.columns * kernels.width;
    for (std::int64_t lane = 0; lane < item_.columns; lane += kernels.tile_lanes) {
      const std::int64_t lanes = std::min(kernels.tile_lanes, item_.columns - lane);
      for (std::int64_t row = 0; row < item_.rows; row += kernels.tile_rows) {
        kernels.dot(std::min(kernels.tile_rows, item_.rows - row), lanes, k, x_ + row * kStep,
                    kStep, a_ + lane * kStep, kStep,
                    partials_ + row * stride + lane * kernels.width, stride);
      }
    }
  }

  void write_row(std::int64_t row) {
    const float scale =
        problem_.scale_at == ScaleAt::kShrink ? launch_.operands.scale[item_.slot] : 1.0F;
    const float* partials = partials_ + row * item_.columns * launch_.kernels.width;
    thread_local std::vector<float> lanes;
    lanes.resize(static_cast<std::size_t>(item_.columns));
    for (std::int64_t index = 0; index < item_.columns; ++index) {
      lanes[static_cast<std::size_t>(index)] =
          launch_.kernels.sum(partials + index * launch_.kernels.width) * scale;
    }
    for (std::int64_t index = 0; index < item_.columns;) {
      const Lane lane = lane_of(index);
      const std::int64_t count = std::min(rank_ - lane.lane, item_.columns - index);
      const std::int64_t to =
          (lane.slice * problem_.tokens + token_of(row)) * problem_.max_rank + lane.lane;
      launch_.kernels.encode(
          problem_.intermediate, lanes.data() + index, count,
          static_cast<char*>(launch_.operands.h) + to * size_bytes(problem_.intermediate));
      index += count;
    }
  }

  const CpuLaunch& launch_;
  const CpuItem& item_;
  const Problem& problem_;
  std::int64_t rank_;
  float* x_ = nullptr;         // [rows][kStep]
  float* a_ = nullptr;         // [lanes][kStep]
  float* partials_ = nullptr;  // [rows][lanes][width]
};

}  // namespace

void shrink_item(const CpuLaunch& launch, const CpuItem& item) { ShrinkItem(launch, item).run(); }

}  // namespace lora_bench
