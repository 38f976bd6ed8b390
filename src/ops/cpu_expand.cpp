#include <algorithm>

#include "ops/cpu_products.h"
#include "ops/scaled_weights.h"

namespace lora_bench {
namespace {

class ExpandItem {
 public:
  ExpandItem(const CpuLaunch& launch, const CpuItem& item)
      : launch_(launch),
        item_(item),
        problem_(launch.problem),
        rank_(launch.operands.rank[item.slot]) {}

  void run() {
    reserve();
    decode_hidden();
    decode_bias();
    // Column by column where each panel is used once, so that it is used while it is near; else
    // row by row with all panels, so that y is written as it lies.
    const std::int64_t rows = launch_.kernels.tile_rows;
    const std::int64_t columns = item_.rows <= rows ? launch_.kernels.tile_columns : item_.columns;
    for (std::int64_t column = 0; column < item_.columns; column += columns) {
      const std::int64_t end = std::min(column + columns, item_.columns);
      build_panels(column, end);
      for (std::int64_t row = 0; row < item_.rows; row += rows) {
        multiply_rows(row, std::min(rows, item_.rows - row), column, end);
      }
    }
  }

 private:
  [[nodiscard]] std::int64_t token_of(std::int64_t row) const {
    return launch_.operands.token_order[item_.first_row + row];
  }

  [[nodiscard]] std::size_t slice() const { return static_cast<std::size_t>(item_.slice); }

  [[nodiscard]] std::int64_t rounded(std::int64_t count) const {
    const std::int64_t width = launch_.kernels.width;
    return (count + width - 1) / width * width;
  }

  void reserve() {
    thread_local CpuScratch hidden;
    thread_local CpuScratch panels;
    thread_local CpuScratch bias;
    thread_local CpuScratch delta;
    const std::int64_t tile = launch_.kernels.tile_columns;
    hidden_ = hidden.reserve(item_.rows * rounded(rank_));
    panels_ = panels.reserve((item_.columns + tile - 1) / tile * tile * rank_);
    bias_ = problem_.has_bias(item_.slice) ? bias.reserve(rounded(item_.columns)) : nullptr;
    delta_ = delta.reserve(launch_.kernels.tile_rows * tile);
  }

  void decode_hidden() {
    const Dtype dtype = problem_.dtype[Role::kH];
    for (std::int64_t row = 0; row < item_.rows; ++row) {
      if (problem_.has_scaled_h() || problem_.h_quantiser) {
        read_h(problem_, launch_.operands, {item_.slice, token_of(row), rank_},
               hidden_ + row * rounded(rank_));
        continue;
      }
      const std::int64_t from = problem_.h_at(item_.slice, token_of(row), rank_, 0);
      launch_.kernels.decode(dtype, element(dtype, launch_.operands.h, from), rank_,
                             hidden_ + row * rounded(rank_));
    }
  }

  void decode_bias() {
    if (bias_ == nullptr) {
      return;
    }
    const std::int64_t from = problem_.bias_at(item_.slice, item_.slot, item_.first_column);
    launch_.kernels.decode(
        problem_.dtype[Role::kBias],
        element(problem_.dtype[Role::kBias], launch_.operands.bias[slice()], from), item_.columns,
        bias_);
  }

  // The panels of columns [first_column, end), from the start of the scratch.
  void build_panels(std::int64_t first_column, std::int64_t end) {
    const std::int64_t tile = launch_.kernels.tile_columns;
    for (std::int64_t column = first_column; column < end; column += tile) {
      if (problem_.has_scaled_weights()) {
        build_scaled_panel(column, std::min(tile, end - column),
                           panels_ + (column - first_column) * rank_);
        continue;
      }
      const std::int64_t first =
          problem_.b_at(item_.slice, item_.slot, item_.first_column + column);
      launch_.kernels.transpose(
          problem_.dtype[Role::kB],
          element(problem_.dtype[Role::kB], launch_.operands.b[slice()], first), problem_.b_pitch(),
          std::min(tile, end - column), rank_, panels_ + (column - first_column) * rank_);
    }
  }

  void build_scaled_panel(std::int64_t first, std::int64_t columns, float* panel) {
    thread_local CpuScratch outputs;
    float* const b = outputs.reserve(columns * rank_);
    for (std::int64_t column = 0; column < columns; ++column) {
      read_weights(problem_, launch_.operands,
                   {Role::kB, item_.slice, item_.slot, rank_, item_.first_column + first + column},
                   0, rank_, b + column * rank_);
    }
    launch_.kernels.transpose(Dtype::kFp32, b, rank_, columns, rank_, panel);
  }

  void multiply_rows(std::int64_t first, std::int64_t rows, std::int64_t first_column,
                     std::int64_t end) {
    const std::int64_t tile = launch_.kernels.tile_columns;
    const std::int64_t stride = rounded(rank_);
    const float scale =
        problem_.scale_at == ScaleAt::kExpand ? launch_.operands.scale[item_.slot] : 1.0F;
    const std::int64_t first_in_y = launch_.slices.column_start[slice()] + item_.first_column;
    for (std::int64_t column = first_column; column < end; column += tile) {
      launch_.kernels.multiply_panel(rows, rank_, hidden_ + first * stride, stride,
                                     panels_ + (column - first_column) * rank_, delta_);
      const std::int64_t count = std::min(tile, end - column);
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t token = token_of(first + row);
        const std::int64_t to = token * problem_.y_stride + first_in_y + column;
        launch_.kernels.finish(
            problem_.dtype[Role::kY], delta_ + row * tile,
            scale * launch_.operands.factor_of(token), bias_ == nullptr ? nullptr : bias_ + column,
            problem_.add_inputs, count,
            static_cast<char*>(launch_.operands.y) + to * size_bytes(problem_.dtype[Role::kY]));
      }
    }
  }

  const CpuLaunch& launch_;
  const CpuItem& item_;
  const Problem& problem_;
  std::int64_t rank_;
  float* hidden_ = nullptr;  // [rows][rank, rounded up]
  float* panels_ = nullptr;  // [tiles][rank][tile_columns]
  float* bias_ = nullptr;    // [columns], or null
  float* delta_ = nullptr;   // [tile_rows][tile_columns]
};

}  // namespace

void expand_item(const CpuLaunch& launch, const CpuItem& item) { ExpandItem(launch, item).run(); }

}  // namespace lora_bench
