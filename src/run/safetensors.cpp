#include "run/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/error.h"

namespace lora_bench {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors stores little-endian data");

std::int64_t element_bytes(const NamedTensor& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t size : tensor.shape) {
    elements *= size;
  }
  return elements == 0 ? 1 : tensor.bytes / elements;
}

// The header, padded with spaces so that the data after it begin on 8 bytes.
std::string header_of(const std::vector<NamedTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::json header;
  header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.type},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

std::string safetensors_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return "F32";
    case Dtype::kBf16:
      return "BF16";
    case Dtype::kFp16:
      return "F16";
    case Dtype::kE4m3:
      return "F8_E4M3";
    case Dtype::kE5m2:
      return "F8_E5M2";
  }
  throw std::logic_error("dtype outside the enumeration");
}

void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  // The format allows no holes between tensors: the widest elements first keep all aligned.
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& left, const auto& right) {
    return element_bytes(left) > element_bytes(right);
  });
  const std::string header = header_of(tensors, metadata);
  const auto header_bytes = std::bit_cast<std::array<char, 8>>(std::uint64_t{header.size()});
  std::ofstream file(path, std::ios::binary);
  file.write(header_bytes.data(), header_bytes.size());
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const NamedTensor& tensor : tensors) {
    file.write(static_cast<const char*>(tensor.data), tensor.bytes);
  }
  file.close();
  if (!file) {
    throw EnvironmentError("cannot write '" + path.string() +
                           "': check that the folder may be written and has room");
  }
}

}  // namespace lora_bench
