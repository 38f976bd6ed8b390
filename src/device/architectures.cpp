#include "device/facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <sstream>
#include <vector>

namespace lora_bench {
namespace {

bool one_fits(const std::string& entry, int capability) {
  int number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error != std::errc{}) {
    return false;
  }
  const std::string_view kind(end, static_cast<std::size_t>(entry.data() + entry.size() - end));
  if (kind.starts_with('a')) {
    return number == capability;
  }
  if (kind.starts_with('f') || kind == "-real") {
    return number / 10 == capability / 10 && number <= capability;
  }
  return number <= capability;
}

}  // namespace

bool architecture_fits(const std::string& built, int compute_capability) {
  std::istringstream entries(built);
  std::string entry;
  while (std::getline(entries, entry, ',')) {
    if (one_fits(entry, compute_capability)) {
      return true;
    }
  }
  return false;
}

std::string architectures_text(std::string_view built) {
  std::istringstream entries{std::string(built)};
  std::vector<std::string> names;
  for (std::string entry; entries >> entry;) {
    const bool numbered = entry.front() >= '0' && entry.front() <= '9';
    names.push_back((numbered ? "sm_" : "") + entry.substr(0, entry.find('-')));
  }
  return fmt::format("{}{}", fmt::join(names, ", "), names.size() == 1 ? " alone" : "");
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string why_no_device(const DriverFacts& facts) {
  if (facts.driver_version == 0) {
    return "no NVIDIA driver: libcuda.so.1 cannot be loaded";
  }
  // Within one major version an older driver serves a newer runtime.
  if (facts.driver_version / 1000 < facts.runtime_version / 1000) {
    return fmt::format(
        "the NVIDIA driver is too old: it supports CUDA {}, this lora-bench was built with CUDA {}",
        cuda_version_text(facts.driver_version), cuda_version_text(facts.runtime_version));
  }
  if (!facts.error.empty()) {
    return fmt::format("no usable GPU: {}", facts.error);
  }
  if (facts.devices == 0) {
    return "no GPU is visible: none in this machine, or CUDA_VISIBLE_DEVICES hides them";
  }
  return {};
}

}  // namespace lora_bench
