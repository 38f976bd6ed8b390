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
    // Few rows: x is small enough to keep whole, and every A row is read from end to end, as memory
    // likes it. Many rows: a step of K serves all lanes while x is near.
    if (keeps_x()) {
      for (std::int64_t first = 0; first < problem_.in_features; first += kStep) {
        decode_x(first, first);
      }
      for (std::int64_t lane = 0; lane < item_.columns; lane += launch_.kernels.tile_lanes) {
        for (std::int64_t first = 0; first < problem_.in_features; first += kStep) {
          multiply(lane, first, first);
        }
      }
    } else {
      for (std::int64_t first = 0; first < problem_.in_features; first += kStep) {
        decode_x(first, 0);
        for (std::int64_t lane = 0; lane < item_.columns; lane += launch_.kernels.tile_lanes) {
          multiply(lane, first, 0);
        }
      }
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

  [[nodiscard]] bool keeps_x() const { return item_.rows <= launch_.kernels.tile_rows; }

  [[nodiscard]] std::int64_t step_from(std::int64_t first) const {
    return std::min(kStep, problem_.in_features - first);
  }

  void reserve() {
    thread_local CpuScratch x;
    thread_local CpuScratch a;
    thread_local CpuScratch partials;
    x_stride_ = keeps_x() ? (problem_.in_features + kStep - 1) / kStep * kStep : kStep;
    x_ = x.reserve(item_.rows * x_stride_);
    a_ = a.reserve(launch_.kernels.tile_lanes * kStep);
    const std::int64_t count = item_.rows * item_.columns * launch_.kernels.width;
    partials_ = partials.reserve(count);
    std::fill_n(partials_, count, 0.0F);
  }

  // Numbers [first, first + step) of all rows of x to column `at` of the scratch.
  void decode_x(std::int64_t first, std::int64_t at) {
    const Dtype dtype = problem_.dtype;
    for (std::int64_t row = 0; row < item_.rows; ++row) {
      const std::int64_t from = token_of(row) * problem_.x_stride + first;
      launch_.kernels.decode(dtype, element(dtype, launch_.operands.x, from), step_from(first),
                             x_ + row * x_stride_ + at);
    }
  }

  void decode_a(std::int64_t first_lane, std::int64_t lanes, std::int64_t first) {
    const Dtype dtype = problem_.dtype;
    for (std::int64_t index = 0; index < lanes; ++index) {
      const Lane lane = lane_of(first_lane + index);
      const std::int64_t row_of_a = item_.slot * problem_.max_rank + lane.lane;
      const void* a = launch_.operands.a[static_cast<std::size_t>(lane.slice)];
      launch_.kernels.decode(dtype, element(dtype, a, row_of_a * problem_.in_features + first),
                             step_from(first), a_ + index * kStep);
    }
  }

  // One step of K of one tile of lanes, for all rows; x lies at column `at` of the scratch.
  void multiply(std::int64_t lane, std::int64_t first, std::int64_t at) {
    const CpuKernels& kernels = launch_.kernels;
    const std::int64_t lanes = std::min(kernels.tile_lanes, item_.columns - lane);
    const std::int64_t k = (step_from(first) + kernels.width - 1) / kernels.width * kernels.width;
    const std::int64_t stride = item_.columns * kernels.width;
    decode_a(lane, lanes, first);
    for (std::int64_t row = 0; row < item_.rows; row += kernels.tile_rows) {
      kernels.dot(std::min(kernels.tile_rows, item_.rows - row), lanes, k,
                  x_ + row * x_stride_ + at, x_stride_, a_, kStep,
                  partials_ + row * stride + lane * kernels.width, stride);
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
  std::int64_t x_stride_ = 0;
  float* x_ = nullptr;         // [rows][x_stride_]: one step of K, or all of it
  float* a_ = nullptr;         // [tile_lanes][kStep]
  float* partials_ = nullptr;  // [rows][lanes][width]
};

}  // namespace

void shrink_item(const CpuLaunch& launch, const CpuItem& item) { ShrinkItem(launch, item).run(); }

}  // namespace lora_bench
