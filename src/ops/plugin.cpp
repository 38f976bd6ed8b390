#include "ops/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/bytes.h"
#include "core/error.h"
#include "lora_bench_backend.h"
#include "ops/peers.h"
#include "ops/python_plugin.h"

namespace lora_bench {
namespace {

constexpr const char* kSymbol = "lora_bench_backend";
// Before anything was appended.
constexpr std::size_t kLeastDescriptorBytes = offsetof(lora_bench_descriptor, supports_metadata);

std::string name_of(const std::filesystem::path& file) {
  const std::string stem = file.stem().string();
  return stem.starts_with("lib") && stem.size() > 3 ? stem.substr(3) : stem;
}

// A NAME= in front of a path, not an '=' somewhere in the path.
std::size_t end_of_name(const std::string& spelling) {
  const std::size_t equals = spelling.find('=');
  return equals < spelling.find('/') ? equals : std::string::npos;
}

bool is_path(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".so") || is_python(text) ||
         names_peer(text);
}

[[noreturn]] void refuse(const PluginPath& plugin, const std::string& what) {
  throw UsageError(fmt::format("backend {}: {}: {}", plugin.name, plugin.file.string(), what));
}

const lora_bench_descriptor* ask_for_descriptor(const PluginPath& plugin,
                                                lora_bench_backend_function function) {
  try {
    return function();
  } catch (...) {
    refuse(plugin, fmt::format("{}() let an exception out", kSymbol));
  }
}

PythonBackend ask_python(const PluginPath& plugin) {
  try {
    return load_python(plugin.file);
  } catch (const UsageError& error) {
    refuse(plugin, error.what());
  }
}

lora_bench_backend_function load(const PluginPath& plugin) {
  // A file of the working folder must not be looked for along the library path.
  const std::filesystem::path file = std::filesystem::absolute(plugin.file);
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    refuse(plugin, fmt::format("cannot be loaded: {}; build it with -shared -fPIC for this machine "
                               "and link what it uses",
                               dlerror()));
  }
  void* symbol = dlsym(library, kSymbol);
  if (symbol == nullptr) {
    refuse(plugin,
           fmt::format("exports no function '{}'; define it as include/lora_bench_backend.h "
                       "declares it, in C++ inside extern \"C\"",
                       kSymbol));
  }
  // POSIX promises that the address of a function survives this.
  return reinterpret_cast<lora_bench_backend_function>(symbol);
}

void check_functions(const PluginPath& plugin, const lora_bench_descriptor& descriptor) {
  const std::array<std::pair<const char*, bool>, 4> required{
      {{"name", descriptor.name != nullptr},
       {"summary", descriptor.summary != nullptr},
       {"supports", descriptor.supports != nullptr},
       {"launch", descriptor.launch != nullptr}}};
  for (const auto& [field, given] : required) {
    if (!given) {
      refuse(plugin, fmt::format("'{}' of its descriptor is NULL; only numerics and "
                                 "workspace_bytes may be",
                                 field));
    }
  }
  if (descriptor.space != LORA_BENCH_HOST && descriptor.space != LORA_BENCH_CUDA) {
    refuse(plugin, fmt::format("'space' of its descriptor is {}; allowed: LORA_BENCH_HOST ({}), "
                               "LORA_BENCH_CUDA ({})",
                               descriptor.space, static_cast<int>(LORA_BENCH_HOST),
                               static_cast<int>(LORA_BENCH_CUDA)));
  }
}

// Looks at no field before it is known that the library has it.
void check_descriptor(const PluginPath& plugin, const lora_bench_descriptor* descriptor) {
  if (descriptor == nullptr) {
    refuse(plugin, fmt::format("{}() returned NULL", kSymbol));
  }
  if (descriptor->abi_version != LORA_BENCH_BACKEND_ABI) {
    refuse(plugin, fmt::format("was built for version {} of the interface, this lora-bench has "
                               "version {}; build it against this one's lora_bench_backend.h",
                               descriptor->abi_version, LORA_BENCH_BACKEND_ABI));
  }
  if (descriptor->struct_size < kLeastDescriptorBytes) {
    refuse(plugin, fmt::format("'struct_size' of its descriptor is {}, must be "
                               "sizeof(lora_bench_descriptor), {}",
                               descriptor->struct_size, sizeof(lora_bench_descriptor)));
  }
  check_functions(plugin, *descriptor);
}

}  // namespace

bool names_plugin(const std::string& spelling) {
  const std::size_t equals = end_of_name(spelling);
  // "fake:slow=2" is no path.
  return is_path(equals == std::string::npos ? spelling : spelling.substr(equals + 1));
}

PluginPath find_plugin(const std::string& spelling) {
  const std::size_t equals = end_of_name(spelling);
  PluginPath plugin;
  const std::string named = equals == std::string::npos ? spelling : spelling.substr(equals + 1);
  plugin.file = names_peer(named) ? peer_file(named) : std::filesystem::path(named);
  plugin.name = equals != std::string::npos ? spelling.substr(0, equals)
                : names_peer(named)         ? named
                                            : name_of(plugin.file);
  if (plugin.name.empty()) {
    throw UsageError(fmt::format("'{}' gives the plugin no name; allowed: NAME=PATH", spelling));
  }
  const auto& registry = backend_registry();
  if (std::any_of(registry.begin(), registry.end(),
                  [&](const BackendEntry& entry) { return entry.name == plugin.name; })) {
    throw UsageError(
        fmt::format("'{}' would be called '{}' as a built-in backend is; give it another name: "
                    "mine={}",
                    spelling, plugin.name, plugin.file.string()));
  }
  std::error_code error;
  if (!std::filesystem::is_regular_file(plugin.file, error)) {
    refuse(plugin, is_python(plugin.file)
                       ? "there is no such file"
                       : "there is no such file; name the shared library that your build made");
  }
  return plugin;
}

std::string plugin_provenance(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(stream), {}};
  std::error_code unknown, no_modules;
  const std::filesystem::path real = std::filesystem::canonical(file, unknown);
  const std::filesystem::path modules = std::filesystem::canonical(python_modules(), no_modules);
  std::filesystem::path told = unknown ? file : real;
  // What comes with the program is the same wherever that lies.
  if (const auto inside = told.lexically_relative(modules);
      !no_modules && !inside.empty() && *inside.begin() != "..") {
    told = inside;
  }
  return fmt::format("{} sha256:{}", told.string(), sha256(content));
}

LoadedPlugin load_plugin(const PluginPath& plugin) {
  const KeptFloatingPoint kept;  // a library built with -ffast-math changes it when it is loaded
  PythonBackend python;
  const bool in_python = is_python(plugin.file);
  if (in_python) {
    python = ask_python(plugin);
  }
  const lora_bench_descriptor* descriptor =
      in_python ? python.descriptor : ask_for_descriptor(plugin, load(plugin));
  check_descriptor(plugin, descriptor);
  return {make_plugin_backend(plugin.name, *descriptor),
          plugin_provenance(plugin.file) + (in_python ? ", " + python.libraries : "")};
}

}  // namespace lora_bench
