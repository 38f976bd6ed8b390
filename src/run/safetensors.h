#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace lora_bench {

// A tensor in memory that belongs to the caller, row-major.
struct NamedTensor {
  std::string name;
  std::string type;  // as safetensors names it: "BF16", "F64", "I32", ...
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
  std::int64_t bytes = 0;
};

[[nodiscard]] std::string safetensors_type(Dtype dtype);

// Writes the file that NumPy's and PyTorch's safetensors read: header length, JSON header, data.
// Throws EnvironmentError when the file cannot be written.
void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata);

// One of a file, as it was stored.
struct StoredTensor {
  std::string type;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;
};
struct StoredTensors {
  std::filesystem::path file;
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};
// Throws UsageError, saying what is wrong, for a file that is missing or no safetensors.
[[nodiscard]] StoredTensors read_safetensors(const std::filesystem::path& path);

}  // namespace lora_bench
