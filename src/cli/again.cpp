#include "cli/again.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cli/terminal.h"
#include "core/error.h"
#include "ops/plugin.h"
#include "ops/python_plugin.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kBetweenStates{50};

std::vector<fs::path> plugin_files(const RunRequest& request) {
  std::vector<fs::path> files;
  for (const std::string& spelling : request.backends) {
    if (names_plugin(spelling)) {
      files.push_back(find_plugin(spelling).file);
    }
  }
  return files;
}

// What changes when a plugin does, or a file of Python beside it, which it may import.
std::string state_of(const std::vector<fs::path>& plugins) {
  std::set<fs::path> files(plugins.begin(), plugins.end());
  std::error_code error;
  for (const fs::path& plugin : plugins) {
    if (is_python(plugin)) {
      for (const fs::directory_entry& entry :
           fs::directory_iterator(fs::absolute(plugin).parent_path(), error)) {
        if (is_python(entry.path())) {
          files.insert(entry.path());
        }
      }
    }
  }
  std::string state;
  for (const fs::path& file : files) {
    const auto written = fs::last_write_time(file, error).time_since_epoch().count();
    state += fmt::format("{} {} {}\n", file.string(), written, fs::file_size(file, error));
  }
  return state;
}

// Whether something has changed; false when the program was asked to end first. An editor may
// write a file in several steps: what is new stays as it is for one look.
bool wait_for_change(const std::vector<fs::path>& plugins, const std::string& before) {
  if (interrupted()) {
    return false;
  }
  print_note(
      fmt::format("waiting for a change of {}; Ctrl-C ends",
                  fmt::join(std::vector<std::string>(plugins.begin(), plugins.end()), ", ")));
  std::string seen = before;
  while (!interrupted()) {
    const std::string now = state_of(plugins);
    if (now != before && now == seen) {
      return true;
    }
    seen = now;
    std::this_thread::sleep_for(kBetweenStates);
  }
  return false;
}

}  // namespace

void refuse_unwatchable(const RunRequest& request) {
  if (plugin_files(request).empty()) {
    throw UsageError(
        "--watch waits for the file of a plugin to change: name one, as in --backends ./mine.py");
  }
  if (!request.out.empty() || request.resume || request.samples_to) {
    throw UsageError(
        "--watch runs the same again and again, and would write over --out, --resume "
        "and --samples-to: leave them out");
  }
}

ExitCode run_at_changes(const RunRequest& request, const std::function<ExitCode()>& turn) {
  const std::vector<fs::path> plugins = plugin_files(request);
  const bool loads_again = std::all_of(plugins.begin(), plugins.end(), is_python);
  ExitCode code = ExitCode::kPass;
  std::string before;
  do {
    before = state_of(plugins);
    try {
      code = turn();
    } catch (const UsageError& error) {
      print_note(fmt::format("lora-bench: {}", error.what()));
      code = ExitCode::kUsage;
    }
  } while (loads_again && !any_abandoned() && wait_for_change(plugins, before));
  return code;
}

std::optional<ExitCode> start_at_changes(const RunRequest& request,
                                         const std::function<std::optional<ExitCode>()>& start) {
  const std::vector<fs::path> plugins = plugin_files(request);
  std::optional<ExitCode> code;
  std::string before;
  do {
    before = state_of(plugins);
    code = start();
  } while (code && wait_for_change(plugins, before));
  return code;
}

}  // namespace lora_bench
