#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lora_bench {

// The command line as documents need it, read off the parser itself so that neither completions nor
// the man page can say anything else than --help does.
struct OptionView {
  std::vector<std::string> names;    // "-h", "--help"; empty for a positional
  std::string positional;            // "scenario"
  std::string value;                 // "FILE", "" for a flag
  std::vector<std::string> choices;  // the only values allowed, if few
  std::string topic;                 // the argument of `list` that names values, if one does
  std::string description;
  bool required = false;
  bool many = false;
};

struct CommandView {
  std::string name;
  std::string description;
  std::string footer;
  std::vector<OptionView> options;
  std::vector<CommandView> commands;
};

// Hidden options and subcommands (those in the group "") are left out.
[[nodiscard]] CommandView view_of(const CLI::App& app);

// A script that completes the app's subcommands, options and values; `shell` is bash, zsh or fish.
// Throws UsageError for another one.
[[nodiscard]] std::string completion_script(const CLI::App& app, const std::string& shell);

// The same content as --help of every command, as a page for man(1).
[[nodiscard]] std::string man_page(const CLI::App& app);

}  // namespace lora_bench
