#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "scenario/scenario.h"

namespace lora_bench {

// Cases that share a tuning: one layer, and sizes of the batch up to the next power of two.
struct ShapeClass {
  std::string op, dtype, intermediate;
  std::string weights = {};  // dtype of A and B where they have eight bits, else empty
  std::int64_t in_features = 0;
  std::vector<std::int64_t> widths;
  std::int64_t rank = 0;    // stored, up to the next power of two
  std::int64_t tokens = 0;  // the same
  std::int64_t rows = 0;    // of an adapter in use, the same

  [[nodiscard]] bool operator==(const ShapeClass&) const = default;
};

struct TunedShape {
  ShapeClass shape;
  Tuning tuning;
  double time_us = 0, auto_us = 0;  // with it, and as `auto` chooses by itself
};

// What `tune` writes and --tuning reads.
struct TuningFile {
  std::string device, tool, commit, date;
  std::vector<TunedShape> shapes;
};

[[nodiscard]] std::string tuning_file_text(const TuningFile& tunings);

// Strict as a scenario is: throws UsageError with all that is wrong, each with its place.
[[nodiscard]] TuningFile parse_tuning_file(const std::string& text,
                                           const std::filesystem::path& file,
                                           const TuningRules& rules);
[[nodiscard]] TuningFile load_tuning_file(const std::filesystem::path& file,
                                          const TuningRules& rules);

}  // namespace lora_bench
