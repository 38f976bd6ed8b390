#pragma once

#include <string>

namespace CLI {
class App;
}

namespace lora_bench {

// A script that completes the app's subcommands, options and values; `shell` is bash, zsh or fish.
// Throws UsageError for another one.
[[nodiscard]] std::string completion_script(const CLI::App& app, const std::string& shell);

// The same content as --help of every command, as a page for man(1).
[[nodiscard]] std::string man_page(const CLI::App& app);

}  // namespace lora_bench
