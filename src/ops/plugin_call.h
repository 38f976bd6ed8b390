#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "core/error.h"
#include "include/lora_bench_backend.h"
#include "ops/backend.h"
#include "ops/plugin.h"

namespace lora_bench {

// What the two files share that call the functions of a plugin.

// Room for a sentence of a plugin.
using PluginText = std::array<char, 1024>;

template <typename Struct>
constexpr std::uint32_t size_of() {
  return static_cast<std::uint32_t>(sizeof(Struct));
}

// Whether the library was built after the field was appended to the descriptor.
template <typename Field>
[[nodiscard]] bool has(const lora_bench_descriptor& descriptor,
                       Field lora_bench_descriptor::*field) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&descriptor);
  const auto* const end = reinterpret_cast<const std::byte*>(&(descriptor.*field) + 1);
  return static_cast<std::int64_t>(descriptor.struct_size) >= end - begin;
}

inline lora_bench_device interface_of(const DeviceFacts& facts) {
  lora_bench_device out{};
  out.struct_size = size_of<lora_bench_device>();
  out.compute_capability = facts.compute_capability;
  out.multiprocessors = facts.multiprocessors;
  out.cache_bytes = facts.cache_bytes;
  out.memory_bytes = facts.memory_bytes;
  return out;
}

// One that forgot to end its sentence must not be read beyond the buffer.
inline std::string sentence(PluginText& text, std::int32_t code, const char* function) {
  text.back() = '\0';
  return text.front() != '\0' ? std::string(text.data())
                              : fmt::format("{} returned {} without a sentence", function, code);
}

// Exceptions must not cross a C interface; of a library that lets one out, the row tells.
template <typename Call>
auto called(const char* function, const Call& call) {
  const KeptFloatingPoint kept;
  try {
    return call();
  } catch (const std::exception& error) {
    throw CaseError(fmt::format("{} let an exception out: {}; catch it and return an error",
                                function, error.what()));
  } catch (...) {
    throw CaseError(fmt::format("{} let an exception out; catch it and return an error", function));
  }
}

// The bytes of a struct, padding too, as they were.
template <typename Struct>
class Before {
 public:
  explicit Before(const Struct& given) : bytes_(bytes_of(given)) {}
  [[nodiscard]] bool still(const Struct& given) const { return bytes_of(given) == bytes_; }

 private:
  using Bytes = std::array<std::byte, sizeof(Struct)>;
  static Bytes bytes_of(const Struct& given) {
    Bytes bytes;
    std::memcpy(bytes.data(), &given, sizeof(Struct));
    return bytes;
  }

  Bytes bytes_;
};

[[noreturn]] inline void refuse_write(const char* function, const char* where) {
  throw CaseError(
      fmt::format("{} wrote into {}, which is there to be read; give the kernel a copy to work on",
                  function, where));
}

// The functions of a plugin that make metadata; null where it has none. The descriptor outlives it.
[[nodiscard]] std::unique_ptr<MetadataBuilder> plugin_metadata(
    const lora_bench_descriptor& descriptor);
// The same of those that quantise.
[[nodiscard]] std::unique_ptr<Quantiser> plugin_quantiser(const lora_bench_descriptor& descriptor);

}  // namespace lora_bench
