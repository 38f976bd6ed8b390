#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/error.h"
#include "run/export.h"

namespace lora_bench {

constexpr std::int64_t kMostOfASize = std::numeric_limits<std::int32_t>::max();

// What a file that `export` wrote says: each of these throws UsageError, with the file and what is
// wrong with it, where it is not there or not as it must be.
class ExportedFile {
 public:
  explicit ExportedFile(StoredTensors& stored) : stored_(stored) {}

  [[nodiscard]] bool has(const std::string& name) const { return stored_.tensors.contains(name); }

  [[nodiscard]] bool says(const std::string& key) const { return stored_.metadata.contains(key); }

  [[nodiscard]] std::string word(const std::string& key) const {
    const auto found = stored_.metadata.find(key);
    if (found == stored_.metadata.end()) {
      refuse(fmt::format("its metadata has no '{}'", key));
    }
    return found->second;
  }

  template <typename Value>
  [[nodiscard]] Value value(const std::string& key) const {
    try {
      return nlohmann::json::parse(word(key)).get<Value>();
    } catch (const nlohmann::json::exception&) {
      refuse(fmt::format("'{}' of its metadata is '{}'", key, word(key)));
    }
  }

  [[nodiscard]] std::int64_t size(const std::string& key) const {
    return whole(key, value<nlohmann::json>(key));
  }

  // Elsewhere a number with a fraction would lose it silently.
  [[nodiscard]] std::int64_t whole(const std::string& key, const nlohmann::json& number) const {
    if (!number.is_number_integer()) {
      refuse(fmt::format("'{}' of its metadata is {}, no whole number", key, number.dump()));
    }
    return checked(key, number.is_number_unsigned() && number.get<std::uint64_t>() > kMostOfASize
                            ? kMostOfASize + 1
                            : number.get<std::int64_t>());
  }

  [[nodiscard]] std::vector<std::int64_t> sizes(const std::string& key) const {
    const auto list = value<nlohmann::json>(key);
    if (!list.is_array()) {
      refuse(fmt::format("'{}' of its metadata is '{}'", key, word(key)));
    }
    std::vector<std::int64_t> sizes;
    for (const nlohmann::json& number : list) {
      sizes.push_back(whole(key, number));
    }
    return sizes;
  }

  [[nodiscard]] std::int64_t checked(const std::string& key, std::int64_t size) const {
    if (size < 0 || size > kMostOfASize) {
      refuse(fmt::format("'{}' is {}; allowed: 0 to {}", key, size, kMostOfASize));
    }
    return size;
  }

  template <typename Enum>
  [[nodiscard]] Enum one_of(const std::string& key, std::initializer_list<Enum> values) const {
    const std::string text = word(key);
    for (const Enum value : values) {
      if (name(value) == text) {
        return value;
      }
    }
    refuse(fmt::format("'{}' of its metadata is '{}'", key, text));
  }

  // Of scales, and of numbers of eight bits where there are scales.
  [[nodiscard]] Dtype dtype_of(Role role, bool has_scales) const {
    const auto dtypes = value<nlohmann::json>("dtypes");
    const auto text = dtypes.find(name(role));
    const std::vector<Dtype> known = has_scales
                                         ? std::vector{Dtype::kE4m3, Dtype::kE5m2}
                                         : std::vector{Dtype::kFp32, Dtype::kBf16, Dtype::kFp16};
    if (text != dtypes.end() && text->is_string()) {
      for (const Dtype dtype : known) {
        if (name(dtype) == text->get<std::string>()) {
          return dtype;
        }
      }
    }
    refuse(fmt::format("'dtypes' of its metadata is '{}'", word("dtypes")));
  }

  [[nodiscard]] const StoredTensor& tensor(const std::string& name) const {
    const auto found = stored_.tensors.find(name);
    if (found == stored_.tensors.end()) {
      refuse(fmt::format("it has no tensor '{}'", name));
    }
    return found->second;
  }

  // Of exactly these elements, no longer in the file after that; one that the op has not, or that
  // is empty, is not in it.
  [[nodiscard]] HostTensor operand(const std::string& name, Dtype dtype,
                                   const std::vector<std::int64_t>& shape, std::int64_t elements) {
    HostTensor operand;
    operand.dtype = dtype;
    operand.elements = elements;
    if (elements > 0) {
      check(name, tensor(name), safetensors_type(dtype), shape, size_bytes(dtype) * elements);
      operand.data = std::move(stored_.tensors[name].data);
    }
    return operand;
  }

  template <typename Element>
  [[nodiscard]] std::vector<Element> list(const std::string& name, const char* type) const {
    const StoredTensor& found = tensor(name);
    std::vector<Element> values(found.data.size() / sizeof(Element));
    check(name, found, type, {static_cast<std::int64_t>(values.size())},
          static_cast<std::int64_t>(values.size() * sizeof(Element)));
    if (!values.empty()) {
      std::memcpy(values.data(), found.data.data(), found.data.size());
    }
    return values;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw UsageError(fmt::format("{}: {}; a case is a file that `lora-bench export` wrote",
                                 stored_.file.string(), what));
  }

 private:
  void check(const std::string& name, const StoredTensor& tensor, const std::string& type,
             const std::vector<std::int64_t>& shape, std::int64_t bytes) const {
    if (tensor.type != type || tensor.shape != shape ||
        static_cast<std::int64_t>(tensor.data.size()) != bytes) {
      refuse(fmt::format("tensor '{}' is {} [{}] of {} bytes, must be {} [{}] of {}", name,
                         tensor.type, fmt::join(tensor.shape, ", "), tensor.data.size(), type,
                         fmt::join(shape, ", "), bytes));
    }
  }

  StoredTensors& stored_;
};

}  // namespace lora_bench
