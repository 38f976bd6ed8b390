#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace lora_bench::test {

// The JSON header of a safetensors file, given its bytes.
inline nlohmann::json header_of(const std::string& file) {
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) {
    length = length * 256 + static_cast<unsigned char>(file[i]);
  }
  return nlohmann::json::parse(file.substr(8, length));
}

}  // namespace lora_bench::test
