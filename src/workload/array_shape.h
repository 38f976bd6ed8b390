#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lora_bench {

// One array that an op without products reads or writes.
struct ArrayShape {
  std::string_view name;
  std::int64_t elements = 0, element_bytes = 0;

  [[nodiscard]] std::int64_t bytes() const { return elements * element_bytes; }
};
using ArrayShapes = std::vector<ArrayShape>;

}  // namespace lora_bench
