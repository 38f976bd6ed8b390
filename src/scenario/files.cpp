#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/error.h"
#include "scenario/settings.h"

namespace lora_bench {
namespace {

namespace fs = std::filesystem;

bool is_inside(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path root = fs::weakly_canonical(folder.empty() ? fs::path(".") : folder, error);
  const auto [end, ignored] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return end == root.end();
}

}  // namespace

std::optional<std::string> read_text(const fs::path& file, const Location& where,
                                     Diagnostics& diagnostics) {
  const auto refuse = [&](const std::string& why) {
    diagnostics.add(where, fmt::format("cannot read {}: {}", file.string(), why));
    return std::nullopt;
  };
  if (const std::string why = why_no_file(file); !why.empty()) {
    return refuse(why);
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    return refuse(std::strerror(errno != 0 ? errno : EIO));
  }
  std::string text(static_cast<std::size_t>(kMaxYamlBytes) + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (stream.bad()) {
    return refuse("reading failed");
  }
  if (static_cast<std::int64_t>(text.size()) > kMaxYamlBytes) {
    return refuse(fmt::format("longer than {} bytes", kMaxYamlBytes));
  }
  return text;
}

std::optional<fs::path> resolve_beside(const std::string& name, const fs::path& folder,
                                       const Location& where, Diagnostics& diagnostics) {
  std::error_code error;
  for (const fs::path& root : {folder, scenario_folder()}) {
    const fs::path candidate = root / name;
    const fs::path whole = fs::weakly_canonical(candidate, error);
    if (!error && fs::exists(whole, error)) {
      if (is_inside(whole, folder) || is_inside(whole, scenario_folder())) {
        return candidate;
      }
      diagnostics.add(where, fmt::format("'{}' lies outside", name),
                      "files beside or below this one, or in the scenario folder");
      return std::nullopt;
    }
  }
  diagnostics.add(where, fmt::format("there is no file '{}'", name),
                  "files beside or below this one, or in the scenario folder");
  return std::nullopt;
}

}  // namespace lora_bench
