#include <fmt/format.h>

#include <array>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "run/safetensors.h"

namespace lora_bench {
namespace {

constexpr std::size_t kLengthBytes = 8;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw UsageError(fmt::format("{}: {}", path.string(), what));
}

// What one reads of a file of some GB lies in memory once: as its tensors.
struct OpenFile {
  std::filesystem::path path;
  std::ifstream stream;
  std::uint64_t bytes = 0;
  std::uint64_t first_byte = 0;  // of the data, behind the header
};

OpenFile opened(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {  // which opens, and has a size
    refuse(path, "is a folder; name a file of it");
  }
  OpenFile file{.path = path, .stream = std::ifstream(path, std::ios::binary | std::ios::ate)};
  const std::streamoff bytes = file.stream ? std::streamoff{file.stream.tellg()} : -1;
  if (bytes < 0) {
    refuse(path, "cannot be read; check the name");
  }
  file.bytes = static_cast<std::uint64_t>(bytes);
  return file;
}

void read_at(OpenFile& file, std::uint64_t begin, std::uint64_t bytes, void* to) {
  file.stream.seekg(static_cast<std::streamoff>(begin));
  if (bytes > 0 && !file.stream.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) {
    refuse(file.path, "cannot be read to its end");
  }
}

StoredTensor tensor_of(OpenFile& file, const std::string& name, const nlohmann::json& entry) {
  StoredTensor tensor;
  tensor.type = entry.at("dtype").get<std::string>();
  tensor.shape = entry.at("shape").get<std::vector<std::int64_t>>();
  const auto begin = entry.at("data_offsets").at(0).get<std::uint64_t>();
  const auto end = entry.at("data_offsets").at(1).get<std::uint64_t>();
  if (begin > end || end > file.bytes - file.first_byte) {
    refuse(file.path, fmt::format("tensor '{}' lies outside the file: it was cut short", name));
  }
  tensor.data.resize(end - begin);
  read_at(file, file.first_byte + begin, end - begin, tensor.data.data());
  return tensor;
}

}  // namespace

StoredTensors read_safetensors(const std::filesystem::path& path) {
  OpenFile file = opened(path);
  std::array<char, kLengthBytes> length{};
  std::uint64_t header_bytes = 0;
  if (file.bytes >= kLengthBytes) {
    read_at(file, 0, kLengthBytes, length.data());
    std::memcpy(&header_bytes, length.data(), kLengthBytes);
  }
  if (file.bytes < kLengthBytes || header_bytes > file.bytes - kLengthBytes) {
    refuse(path, "is no safetensors file, or was cut short");
  }
  std::string text(header_bytes, '\0');
  read_at(file, kLengthBytes, header_bytes, text.data());
  file.first_byte = kLengthBytes + header_bytes;
  StoredTensors stored;
  stored.file = path;
  try {
    const nlohmann::json header = nlohmann::json::parse(text);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        stored.metadata = entry.get<std::map<std::string, std::string>>();
      } else {
        stored.tensors[name] = tensor_of(file, name, entry);
      }
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("is no safetensors file: {}", error.what()));
  }
  return stored;
}

}  // namespace lora_bench
