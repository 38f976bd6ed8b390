#include "ops/found_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace lora_bench {

FoundLibrary::FoundLibrary(const std::string& product, const std::string& stem, int version)
    : stem_(stem) {
  // The toolkit's installer leaves its folder out of the loader's path.
  const std::string name = fmt::format("{}.{}", stem, version);
  const std::array<std::string, 2> places{name, "/usr/local/cuda/lib64/" + name};
  for (const std::string& place : places) {
    handle_ = handle_ == nullptr ? dlopen(place.c_str(), RTLD_LAZY | RTLD_LOCAL) : handle_;
  }
  if (handle_ == nullptr) {
    missing_ =
        fmt::format("{} cannot be loaded: install {} {}, or name its folder in LD_LIBRARY_PATH",
                    name, product, version);
  }
}

void* FoundLibrary::address(const char* symbol) {
  void* const found = handle_ == nullptr ? nullptr : dlsym(handle_, symbol);
  if (found == nullptr && missing_.empty()) {
    missing_ = fmt::format("{} has no {}", stem_, symbol);
  }
  return found;
}

}  // namespace lora_bench
