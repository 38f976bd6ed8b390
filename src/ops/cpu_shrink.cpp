#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "ops/cpu_products.h"
#include "ops/scaled_weights.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kStep = 512;  // of K at a time: what is decoded stays in the nearer caches

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
    // Few rows: x is small enough to keep whole, and every A row is read once, from end to end, as
    // memory likes it. Many rows: a step of K serves all lanes while x is near.
    if (keeps_x()) {
      for (std::int64_t first = 0; first < problem_.in_features; first += kStep) {
        decode_x(first, first);
      }
      for (std::int64_t lane = 0; lane < item_.columns; lane += launch_.kernels.tile_lanes) {
        multiply_stored(lane);
      }
    } else {
      for (std::int64_t first = 0; first < problem_.in_features; first += kStep) {
        decode_x(first, 0);
        decode_a(first);
        multiply(first);
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

  // Numbers with scales are decoded before they are multiplied, however few rows there are.
  [[nodiscard]] bool keeps_x() const {
    return item_.rows <= launch_.kernels.tile_rows && !problem_.has_scaled_weights();
  }

  [[nodiscard]] std::int64_t step_from(std::int64_t first) const {
    return std::min(kStep, problem_.in_features - first);
  }

  void reserve() {
    thread_local CpuScratch x;
    thread_local CpuScratch a;
    thread_local CpuScratch partials;
    x_stride_ = keeps_x() ? (problem_.in_features + kStep - 1) / kStep * kStep : kStep;
    x_ = x.reserve(item_.rows * x_stride_);
    a_ = a.reserve(keeps_x() ? 0 : item_.columns * kStep);
    const std::int64_t count = item_.rows * item_.columns * launch_.kernels.width;
    partials_ = partials.reserve(count);
    std::fill_n(partials_, count, 0.0F);
  }

  // So many numbers of a row of x side by side.
  [[nodiscard]] const void* gathered(const void* x, std::int64_t count) const {
    const std::int64_t bytes = size_bytes(problem_.dtype[Role::kX]);
    const std::int64_t stride = problem_.layout.x_column_stride * bytes;
    if (stride == bytes) {
      return x;
    }
    thread_local std::vector<std::byte> numbers;
    numbers.resize(static_cast<std::size_t>(count * bytes));
    for (std::int64_t index = 0; index < count; ++index) {
      std::memcpy(numbers.data() + index * bytes, static_cast<const std::byte*>(x) + index * stride,
                  static_cast<std::size_t>(bytes));
    }
    return numbers.data();
  }

  // Numbers [first, first + step) of all rows of x to column `at` of the scratch.
  void decode_x(std::int64_t first, std::int64_t at) {
    const Dtype dtype = problem_.dtype[Role::kX];
    for (std::int64_t row = 0; row < item_.rows; ++row) {
      if (problem_.has_scaled_x()) {
        float* const to = x_ + row * x_stride_ + at;
        read_x(problem_, launch_.operands, lane_of(0).slice, token_of(row), first, step_from(first),
               to);
        std::fill(to + step_from(first), to + kStep, 0.0F);
        continue;
      }
      const std::int64_t row_of_x =
          launch_.operands.x_row(problem_, lane_of(0).slice, token_of(row));
      const std::int64_t from =
          row_of_x * problem_.x_stride + first * problem_.layout.x_column_stride;
      const void* const numbers =
          gathered(element(dtype, launch_.operands.x, from), step_from(first));
      launch_.kernels.decode(dtype, numbers, step_from(first), x_ + row * x_stride_ + at);
    }
  }

  // A of one lane from number `first` on.
  [[nodiscard]] const void* a_of(std::int64_t index, std::int64_t first) const {
    const Lane lane = lane_of(index);
    const std::int64_t lane_at = problem_.a_at(lane.slice, item_.slot, rank_, lane.lane);
    return element(problem_.dtype[Role::kA],
                   launch_.operands.a[static_cast<std::size_t>(lane.slice)], lane_at + first);
  }

  void decode_a(std::int64_t first) {
    for (std::int64_t lane = 0; lane < item_.columns; ++lane) {
      if (problem_.has_scaled_weights()) {
        const Lane at = lane_of(lane);
        float* const to = a_ + lane * kStep;
        read_weights(problem_, launch_.operands, {Role::kA, at.slice, item_.slot, rank_, at.lane},
                     first, step_from(first), to);
        std::fill(to + step_from(first), to + kStep, 0.0F);
        continue;
      }
      launch_.kernels.decode(problem_.dtype[Role::kA], a_of(lane, first), step_from(first),
                             a_ + lane * kStep);
    }
  }

  // All of K of one tile of lanes, for the few rows.
  void multiply_stored(std::int64_t first_lane) {
    constexpr std::int64_t kMostLanes = 4;
    const CpuKernels& kernels = launch_.kernels;
    const std::int64_t lanes = std::min(kernels.tile_lanes, item_.columns - first_lane);
    const void* a[kMostLanes];
    const void* ahead[kMostLanes];
    for (std::int64_t index = 0; index < lanes; ++index) {
      const std::int64_t lane = first_lane + index;
      a[index] = a_of(lane, 0);
      ahead[index] = a_of(std::min(lane + kernels.tile_lanes, item_.columns - 1), 0);
    }
    kernels.dot_stored(problem_.dtype[Role::kA], item_.rows, lanes, problem_.in_features, x_,
                       x_stride_, a, ahead, partials_ + first_lane * kernels.width,
                       item_.columns * kernels.width);
  }

  // One step of K. The rows of a tile stay in the nearest cache while all lanes pass by.
  void multiply(std::int64_t first) {
    const CpuKernels& kernels = launch_.kernels;
    const std::int64_t k = (step_from(first) + kernels.width - 1) / kernels.width * kernels.width;
    const std::int64_t stride = item_.columns * kernels.width;
    for (std::int64_t row = 0; row < item_.rows; row += kernels.tile_rows) {
      const std::int64_t rows = std::min(kernels.tile_rows, item_.rows - row);
      for (std::int64_t lane = 0; lane < item_.columns; lane += kernels.tile_lanes) {
        kernels.dot(rows, std::min(kernels.tile_lanes, item_.columns - lane), k,
                    x_ + row * x_stride_, x_stride_, a_ + lane * kStep, kStep,
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
      const std::int64_t to = problem_.h_at(lane.slice, token_of(row), rank_, lane.lane);
      add_given(to, lanes.data() + index, count);
      launch_.kernels.encode(
          problem_.dtype[Role::kH], lanes.data() + index, count,
          static_cast<char*>(launch_.operands.h) + to * size_bytes(problem_.dtype[Role::kH]));
      index += count;
    }
  }

  // What h held, from element `from` on, to some of its lanes.
  void add_given(std::int64_t from, float* lanes, std::int64_t count) const {
    if (!problem_.adds_to_h()) {
      return;
    }
    thread_local std::vector<float> given;
    given.resize(static_cast<std::size_t>(count + launch_.kernels.width));
    launch_.kernels.decode(problem_.dtype[Role::kH],
                           element(problem_.dtype[Role::kH], launch_.operands.h, from), count,
                           given.data());
    std::transform(lanes, lanes + count, given.begin(), lanes, std::plus<>());
  }

  const CpuLaunch& launch_;
  const CpuItem& item_;
  const Problem& problem_;
  std::int64_t rank_;
  std::int64_t x_stride_ = 0;
  float* x_ = nullptr;         // [rows][x_stride_]: one step of K, or all of it
  float* a_ = nullptr;         // [lanes][kStep]: one step of K
  float* partials_ = nullptr;  // [rows][lanes][width]
};

}  // namespace

void shrink_item(const CpuLaunch& launch, const CpuItem& item) { ShrinkItem(launch, item).run(); }

}  // namespace lora_bench
