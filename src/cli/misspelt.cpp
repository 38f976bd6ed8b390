#include "cli/invocation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "cli/command_view.h"
#include "cli/supervised.h"
#include "core/error.h"

namespace lora_bench {
namespace {

// "--threshold" of "--threshold=x"; "" for what is no option, a number or a dash among them.
std::string option_in(const std::string& word) {
  const bool named = word.size() > 1 && word[0] == '-' &&
                     (std::isalpha(static_cast<unsigned char>(word[1])) != 0 ||
                      (word[1] == '-' && word.size() > 2));
  return named ? word.substr(0, word.find('=')) : "";
}

const OptionView* find_option(const CommandView& command, const std::string& name) {
  for (const OptionView& option : command.options) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) {
      return &option;
    }
  }
  return nullptr;
}

// Compared without dashes, which would make any two of them alike.
std::string nearest_option(const CommandView& command, const std::string& name) {
  std::vector<std::string> words;
  for (const OptionView& option : command.options) {
    for (const std::string& known : option.names) {
      if (known.starts_with("--")) {
        words.push_back(known.substr(2));
      }
    }
  }
  const std::string near = nearest(name.substr(name.find_first_not_of('-')), words);
  return near.empty() ? "" : "--" + near;
}

[[noreturn]] void refuse_option(const std::string& name, const CommandView& command,
                                const CommandView& app) {
  Diagnostic diagnostic;
  const bool of_app = &command == &app;
  diagnostic.what = fmt::format("{}: unknown option '{}'", command.name, name);
  if (!of_app && find_option(app, name) != nullptr) {
    diagnostic.what +=
        fmt::format("; it stands before the command: lora-bench {} ... {}", name, command.name);
  } else {
    diagnostic.suggestion = nearest_option(command, name);
    if (diagnostic.suggestion.empty()) {
      diagnostic.what += fmt::format("; `lora-bench{} --help` lists what there is",
                                     of_app ? "" : " " + command.name);
    }
  }
  throw UsageError({diagnostic});
}

// Where the command stands, or would.
int place_of_command(const CommandView& app, int argc, const char* const* argv) {
  int at = 1;
  while (at < argc && argv[at][0] == '-') {
    const std::string word = argv[at++];
    const std::string name = option_in(word);
    if (name.empty() || name == kSupervisedFlag) {
      continue;
    }
    const OptionView* option = find_option(app, name);
    if (option == nullptr) {
      refuse_option(name, app, app);
    }
    at += !option->value.empty() && name == word ? 1 : 0;
  }
  return at;
}

[[noreturn]] void refuse_command(const CommandView& app, const std::string& word) {
  std::vector<std::string> known;
  for (const CommandView& command : app.commands) {
    known.push_back(command.name);
  }
  Diagnostic diagnostic;
  diagnostic.what = fmt::format("there is no command '{}'", word);
  diagnostic.allowed = fmt::format("{}", fmt::join(known, ", "));
  diagnostic.suggestion = nearest(word, known);
  throw UsageError({diagnostic});
}

// The parser says "what: metricz not in {scenarios,metrics}".
void refuse_value(const std::string& said) {
  const std::size_t colon = said.find(": ");
  const std::size_t listed = said.find(" not in {");
  if (colon == std::string::npos || listed == std::string::npos || listed < colon ||
      said.back() != '}') {
    return;
  }
  std::vector<std::string> known(1);
  for (const char letter : said.substr(listed + 9, said.size() - listed - 10)) {
    if (letter == ',') {
      known.emplace_back();
    } else {
      known.back() += letter;
    }
  }
  const std::string word = said.substr(colon + 2, listed - colon - 2);
  Diagnostic diagnostic;
  diagnostic.what = fmt::format("{}: unknown '{}'", said.substr(0, colon), word);
  diagnostic.allowed = fmt::format("{}", fmt::join(known, ", "));
  diagnostic.suggestion = nearest(word, known);
  throw UsageError({diagnostic});
}

}  // namespace

void refuse_misspelt(const CLI::App& app, const CLI::ParseError& error, int argc,
                     const char* const* argv) {
  const CommandView view = view_of(app);
  int at = place_of_command(view, argc, argv);
  if (at >= argc) {
    return;
  }
  const auto command = std::find_if(view.commands.begin(), view.commands.end(),
                                    [&](const CommandView& c) { return c.name == argv[at]; });
  if (command == view.commands.end()) {
    refuse_command(view, argv[at]);
  }
  while (++at < argc && std::string(argv[at]) != "--") {
    const std::string name = option_in(argv[at]);
    if (!name.empty() && find_option(*command, name) == nullptr) {
      refuse_option(name, *command, view);
    }
  }
  refuse_value(error.what());
}

}  // namespace lora_bench
