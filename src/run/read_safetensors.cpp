#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "run/safetensors.h"

namespace lora_bench {
namespace {

constexpr std::size_t kLengthBytes = 8;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw UsageError(fmt::format("{}: {}", path.string(), what));
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    refuse(path, "cannot be read; check the name");
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

StoredTensor tensor_of(const std::filesystem::path& path, const std::string& name,
                       const nlohmann::json& entry, const std::string& content,
                       std::size_t first_byte) {
  StoredTensor tensor;
  tensor.type = entry.at("dtype").get<std::string>();
  tensor.shape = entry.at("shape").get<std::vector<std::int64_t>>();
  const auto begin = entry.at("data_offsets").at(0).get<std::uint64_t>();
  const auto end = entry.at("data_offsets").at(1).get<std::uint64_t>();
  if (begin > end || end > content.size() - first_byte) {
    refuse(path, fmt::format("tensor '{}' lies outside the file: it was cut short", name));
  }
  tensor.data.resize(end - begin);
  if (!tensor.data.empty()) {
    std::memcpy(tensor.data.data(), content.data() + first_byte + begin, tensor.data.size());
  }
  return tensor;
}

}  // namespace

StoredTensors read_safetensors(const std::filesystem::path& path) {
  const std::string content = content_of(path);
  std::uint64_t header_bytes = 0;
  if (content.size() >= kLengthBytes) {
    std::memcpy(&header_bytes, content.data(), kLengthBytes);
  }
  if (content.size() < kLengthBytes || header_bytes > content.size() - kLengthBytes) {
    refuse(path, "is no safetensors file, or was cut short");
  }
  StoredTensors stored;
  stored.file = path;
  try {
    const nlohmann::json header = nlohmann::json::parse(content.substr(kLengthBytes, header_bytes));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        stored.metadata = entry.get<std::map<std::string, std::string>>();
      } else {
        stored.tensors[name] = tensor_of(path, name, entry, content, kLengthBytes + header_bytes);
      }
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("is no safetensors file: {}", error.what()));
  }
  return stored;
}

}  // namespace lora_bench
