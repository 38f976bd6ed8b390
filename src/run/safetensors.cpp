#include "run/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "report/json_row.h"

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

namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // as other readers of the format have it

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
  if (const std::string why = why_no_file(path); !why.empty()) {
    refuse(path, why);
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

// What the header says of a tensor.
struct Entry {
  std::string type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // of its bytes, from the first of all
};

// Of the types whose size is that of their name; 0 for others, which nothing here takes.
std::uint64_t stored_element_bytes(const std::string& type) {
  static const std::map<std::string, std::uint64_t> kBytes{
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
      {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? 0 : found->second;
}

// Elsewhere a size with a fraction or a sign would become another one silently.
std::uint64_t whole_number(const OpenFile& file, const std::string& name, const char* key,
                           const nlohmann::json& number) {
  if (!number.is_number_unsigned() ||
      number.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    refuse(file.path, fmt::format("'{}' of tensor '{}' holds {}, no whole number from 0 on", key,
                                  name, number.dump()));
  }
  return number.get<std::uint64_t>();
}

Entry entry_of(const OpenFile& file, const std::string& name, const nlohmann::json& json) {
  Entry entry;
  entry.type = json.at("dtype").get<std::string>();
  std::uint64_t bytes = stored_element_bytes(entry.type);
  for (const nlohmann::json& size : json.at("shape")) {
    entry.shape.push_back(static_cast<std::int64_t>(whole_number(file, name, "shape", size)));
    // More than the file has is wrong whatever follows but a 0.
    const auto next = static_cast<std::uint64_t>(entry.shape.back());
    bytes = next == 0 ? 0 : bytes > file.bytes / next ? file.bytes + 1 : bytes * next;
  }
  const nlohmann::json& offsets = json.at("data_offsets");
  if (!json.at("shape").is_array() || !offsets.is_array() || offsets.size() != 2) {
    refuse(file.path, fmt::format("'shape' of tensor '{}' is no list, or 'data_offsets' no list of "
                                  "two",
                                  name));
  }
  entry.begin = whole_number(file, name, "data_offsets", offsets[0]);
  entry.end = whole_number(file, name, "data_offsets", offsets[1]);
  if (entry.begin > entry.end || entry.end > file.bytes - file.first_byte) {
    refuse(file.path, fmt::format("tensor '{}' lies outside the file: it was cut short", name));
  }
  if (stored_element_bytes(entry.type) > 0 && entry.end - entry.begin != bytes) {
    refuse(file.path,
           fmt::format("tensor '{}' is {} [{}] in {} bytes, which it does not fill", name,
                       entry.type, fmt::join(entry.shape, ", "), entry.end - entry.begin));
  }
  return entry;
}

// The format has no byte that is of two tensors or of none: what stands there is nobody's, and
// another reader might take it for something.
void refuse_overlaps_and_holes(const OpenFile& file, const std::map<std::string, Entry>& entries) {
  std::vector<std::pair<std::string, Entry>> ordered(entries.begin(), entries.end());
  std::sort(ordered.begin(), ordered.end(), [](const auto& left, const auto& right) {
    return std::tie(left.second.begin, left.second.end) <
           std::tie(right.second.begin, right.second.end);
  });
  std::uint64_t end = 0;
  for (const auto& [name, entry] : ordered) {
    if (entry.begin != end) {
      refuse(file.path,
             fmt::format("tensor '{}' begins at byte {} of the data, where byte {} is next: "
                         "tensors {}",
                         name, entry.begin, end,
                         entry.begin < end ? "overlap" : "leave bytes between them"));
    }
    end = entry.end;
  }
  if (end != file.bytes - file.first_byte) {
    refuse(file.path,
           fmt::format("has {} bytes behind its last tensor", file.bytes - file.first_byte - end));
  }
}

// A key that stands twice is one tensor here and may be the other elsewhere.
nlohmann::json header_of(const OpenFile& file, const std::string& text) {
  std::string twice;
  nlohmann::json header = parse_keys_once(text, twice);
  if (!twice.empty()) {
    refuse(file.path, fmt::format("its header has the key '{}' twice", twice));
  }
  if (!header.is_object()) {
    refuse(file.path, "is no safetensors file: its header is no JSON object");
  }
  return header;
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
  if (header_bytes > kMostHeaderBytes) {
    refuse(path,
           fmt::format("is no safetensors file: its header would have {} bytes", header_bytes));
  }
  std::string text(header_bytes, '\0');
  read_at(file, kLengthBytes, header_bytes, text.data());
  file.first_byte = kLengthBytes + header_bytes;
  StoredTensors stored;
  stored.file = path;
  std::map<std::string, Entry> entries;
  try {
    const nlohmann::json header = header_of(file, text);
    for (const auto& [name, json] : header.items()) {
      if (name == "__metadata__") {
        stored.metadata = json.get<std::map<std::string, std::string>>();
      } else {
        entries[name] = entry_of(file, name, json);
      }
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(path, fmt::format("is no safetensors file: {}", error.what()));
  }
  refuse_overlaps_and_holes(file, entries);
  for (const auto& [name, entry] : entries) {
    StoredTensor& tensor = stored.tensors[name];
    tensor.type = entry.type;
    tensor.shape = entry.shape;
    tensor.data.resize(entry.end - entry.begin);
    read_at(file, file.first_byte + entry.begin, entry.end - entry.begin, tensor.data.data());
  }
  return stored;
}

}  // namespace lora_bench
