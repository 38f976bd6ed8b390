#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace lora_bench::test {

// Of a safetensors file, given its bytes: where its tensors begin, its JSON header, and where the
// elements of one tensor begin.
inline std::size_t data_begin(const std::string& file) {
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) {
    length = length * 256 + static_cast<unsigned char>(file[i]);
  }
  return 8 + length;
}
inline nlohmann::json header_of(const std::string& file) {
  return nlohmann::json::parse(file.substr(8, data_begin(file) - 8));
}
inline std::size_t place_of(const std::string& file, const std::string& tensor) {
  return data_begin(file) + header_of(file)[tensor]["data_offsets"][0].get<std::size_t>();
}

}  // namespace lora_bench::test
