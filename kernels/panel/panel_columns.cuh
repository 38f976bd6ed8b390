#pragma once

#include <cstdint>

#include "kernels/params.h"

// How a block of expand walks over the column tiles of all slices.
namespace lora_bench::kernels {

struct PanelColumns {
  int slice = 0;
  int column = 0;
  int width = 0;
  std::int64_t slice_start = 0;

  __device__ void begin(const ExpandParams& params, int tile, int columns) {
    slice_start = params.first_column;
    for (;; ++slice) {
      width = static_cast<int>(params.width[slice]);
      const int of_slice = (width + columns - 1) / columns;
      if (tile < of_slice) {
        column = tile * columns;
        return;
      }
      tile -= of_slice;
      slice_start += width;
    }
  }
  __device__ bool step_on(const ExpandParams& params, int columns) {  // true: a slice begins
    column += columns;
    if (column < width) {
      return false;
    }
    column = 0;
    do {
      slice_start += width;
      ++slice;
      width = slice < params.slices ? static_cast<int>(params.width[slice]) : 1;
    } while (width == 0);
    return true;
  }
};

}  // namespace lora_bench::kernels
