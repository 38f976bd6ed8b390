#pragma once

#include <string>
#include <vector>

namespace lora_bench {

// A library of NVIDIA's that is looked for when the tool runs, so that it starts without.
// Never unloaded: the process ends soon enough.
class FoundLibrary {
 public:
  // `product` "cuBLAS", `stem` libcublas.so, `version` the major one that the tool was built with.
  // It is looked for where the loader looks (LD_LIBRARY_PATH among others), then in `folders`, then
  // in that of the toolkit's libraries.
  FoundLibrary(const std::string& product, const std::string& stem, int version,
               const std::vector<std::string>& folders = {});

  // Leaves `function` null and says so in missing() where the library lacks the symbol.
  template <typename Function>
  void find(const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(address(symbol));
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  [[nodiscard]] void* address(const char* symbol);

  std::string stem_;
  void* handle_ = nullptr;
  std::string missing_;
};

}  // namespace lora_bench
