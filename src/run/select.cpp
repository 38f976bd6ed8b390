#include "run/select.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "ops/backends.h"
#include "ops/peers.h"
#include "ops/plugin.h"
#include "ops/python_plugin.h"
#include "run/watch.h"
#include "verify/mutants.h"

namespace lora_bench {
namespace {

constexpr std::string_view kMutantPrefix = "mutant:";
constexpr std::string_view kFakePrefix = "fake:";

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

const BackendEntry& find_entry(const std::string& name) {
  std::vector<std::string> known;
  for (const BackendEntry& entry : backend_registry()) {
    if (entry.name == name) {
      return entry;
    }
    known.push_back(entry.name);
  }
  Diagnostic diagnostic;
  diagnostic.what = fmt::format("unknown backend '{}'", name);
  diagnostic.allowed =
      fmt::format("{}, peer:NAME, mutant:FAULT, fake:BEHAVIOUR, PATH.so, PATH.py, NAME=PATH",
                  fmt::join(known, ", "));
  diagnostic.suggestion = nearest(name, known);
  throw UsageError({diagnostic});
}

// Its constructors run then, which may hang as any other function of it.
LoadedPlugin load_watched(const PluginPath& plugin, double most_seconds) {
  const auto loaded = std::make_shared<LoadedPlugin>();
  const auto pulse = std::make_shared<Pulse>();
  const auto load = [plugin, loaded, pulse] {
    const CallInHand loading(Call::kLoading);
    const std::int64_t before = pulse->enter();
    *loaded = load_plugin(plugin);
    pulse->leave(before);
  };
  if (run_watched(load, *pulse, most_seconds) == Ended::kHung) {
    throw LoadingHung(fmt::format("backend {}: {}: loading did not return within {} s", plugin.name,
                                  plugin.file.string(), most_seconds));
  }
  return *loaded;
}

Selected select_plugin(const std::string& spelling, double most_seconds) {
  const PluginPath plugin = find_plugin(spelling);
  const CallInHand loading(Call::kLoading);
  LoadedPlugin loaded = load_watched(plugin, most_seconds);
  Selected selected{plugin.name, "", std::move(loaded.backend), std::move(loaded.provenance)};
  if (selected.backend->space() == Space::kDevice) {
    selected.why_not_here = why_no_gpu();
    if (!selected.why_not_here.empty() && is_python(plugin.file) && !names_peer(spelling)) {
      selected.why_not_here +=
          "; a function that runs on the host declares it: @lora_bench.backend(device=\"cpu\")";
    }
  }
  if (!selected.why_not_here.empty()) {
    selected.backend = nullptr;
  }
  return selected;
}

}  // namespace

Selected select_backend(const std::string& name, double most_seconds) {
  if (names_plugin(name)) {
    return select_plugin(name, most_seconds);
  }
  if (starts_with(name, kMutantPrefix)) {
    const std::string fault = name.substr(kMutantPrefix.size());
    const std::string why_not = why_no_mutant(fault);
    return {name, why_not, why_not.empty() ? make_mutant(fault) : nullptr, ""};
  }
  if (name == "fake" || starts_with(name, kFakePrefix)) {
    return {name, "", make_fake(name == "fake" ? "" : name.substr(kFakePrefix.size())), ""};
  }
  const BackendEntry& entry = find_entry(name);
  return {name, entry.why_not_here, entry.why_not_here.empty() ? entry.make() : nullptr, ""};
}

bool runs_on_gpu(const Selected& selected) {
  return selected.backend && selected.backend->space() == Space::kDevice;
}

std::string why_not_here(const std::string& name) {
  if (starts_with(name, kMutantPrefix)) {
    return why_no_mutant(name.substr(kMutantPrefix.size()));
  }
  const bool fake = name == "fake" || starts_with(name, kFakePrefix);
  return fake ? "" : find_entry(name).why_not_here;
}

std::string backend_name(const std::string& spelling) {
  return names_plugin(spelling) ? find_plugin(spelling).name : spelling;
}

void check_backend(const std::string& name) {
  if (names_plugin(name)) {
    static_cast<void>(find_plugin(name));
    return;
  }
  const bool made_up =
      name == "fake" || starts_with(name, kMutantPrefix) || starts_with(name, kFakePrefix);
  if (made_up) {
    static_cast<void>(select_backend(name));
  } else {
    static_cast<void>(find_entry(name));
  }
}

std::vector<std::string> usable_backends() {
  std::vector<std::string> names;
  for (const BackendEntry& entry : backend_registry()) {
    if (entry.why_not_here.empty()) {
      names.push_back(entry.name);
    }
  }
  return names;
}

std::vector<std::string> default_backends() {
  std::vector<std::string> device;
  std::vector<std::string> host;
  for (const std::string& name : usable_backends()) {
    const bool on_device = select_backend(name).backend->space() == Space::kDevice;
    (on_device ? device : host).push_back(name);
  }
  return device.empty() ? host : device;
}

}  // namespace lora_bench
