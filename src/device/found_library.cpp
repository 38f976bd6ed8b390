#include "device/found_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lora_bench {

FoundLibrary::FoundLibrary(const std::string& product, const std::string& stem, int version,
                           const std::vector<std::string>& folders)
    : stem_(stem) {
  const std::string name = fmt::format("{}.{}", stem, version);
  handle_ = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  // The toolkit's installer leaves its folders out of the loader's path.
  std::vector<std::string> looked_in = folders;
  looked_in.emplace_back("/usr/local/cuda/lib64");
  for (const std::string& folder : looked_in) {
    handle_ = handle_ == nullptr
                  ? dlopen(fmt::format("{}/{}", folder, name).c_str(), RTLD_LAZY | RTLD_LOCAL)
                  : handle_;
  }
  if (handle_ == nullptr) {
    missing_ = fmt::format(
        "{} cannot be loaded, neither from the loader's path nor from {}: install {} {}, or name "
        "its folder in LD_LIBRARY_PATH",
        name, fmt::join(looked_in, " or "), product, version);
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
