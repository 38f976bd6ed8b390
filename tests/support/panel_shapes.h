#pragma once

#include <cstdint>
#include <vector>

#include "kernels/panel/panel_tuning.h"

// Shapes that backend `panel` is asked about.
namespace lora_bench::test {

inline kernels::RowTiles tiles_of(const std::vector<std::int64_t>& rows) {
  std::vector<std::int32_t> starts{0};
  for (const std::int64_t each : rows) {
    starts.push_back(starts.back() + static_cast<std::int32_t>(each));
  }
  return kernels::RowTiles(starts);
}

inline kernels::PanelShape shape_of(std::int64_t tokens, std::int64_t active, std::int64_t slices,
                                    std::int64_t rank) {
  kernels::PanelShape shape;
  shape.tokens = tokens;
  shape.active = active;
  shape.slices = slices;
  shape.max_rank = rank;
  shape.in_features = 4096;
  return shape;
}

}  // namespace lora_bench::test
