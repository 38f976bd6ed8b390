#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace lora_bench {

// The names of an enumeration whose values are 0, 1, 2 and so on: `kNames`, in their order. Stands
// beside the enumeration.
template <typename Enum>
struct EnumNames;

template <typename Enum>
concept HasNames = requires {
  EnumNames<Enum>::kNames.size();
};

// Throws std::out_of_range for what is no value of the enumeration.
template <HasNames Enum>
[[nodiscard]] constexpr std::string_view name(Enum value) {
  return EnumNames<Enum>::kNames.at(static_cast<std::size_t>(value));
}

// The value of that name; none where there is none.
template <HasNames Enum>
[[nodiscard]] constexpr std::optional<Enum> named(std::string_view text) {
  for (std::size_t i = 0; i < EnumNames<Enum>::kNames.size(); ++i) {
    if (EnumNames<Enum>::kNames[i] == text) {
      return static_cast<Enum>(i);
    }
  }
  return std::nullopt;
}

}  // namespace lora_bench
