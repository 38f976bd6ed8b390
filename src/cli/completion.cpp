#include "cli/command_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace lora_bench {
namespace {

// The names in what `list TOPIC` prints; a placeholder such as mutant:FAULT is no name.
constexpr const char* kNamesOfList = R"(sed -n 's/^  \([^ A-Z]*\) .*/\1/p')";

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// For a word between single quotes, in each of the three shells.
std::string quoted(const std::string& text, const std::string& quote) {
  std::string out;
  for (const char letter : text) {
    out += letter == '\'' ? quote : std::string(1, letter);
  }
  return "'" + out + "'";
}

std::string function_name(const CommandView& app) {
  std::string name = "_" + app.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<std::string> option_names(const CommandView& command) {
  std::vector<std::string> names;
  for (const OptionView& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::string bash_words(const OptionView& option, const std::string& function) {
  return option.topic.empty() ? fmt::format("'{}'", joined(option.choices))
                              : fmt::format("$({}_listed {})", function, option.topic);
}

// Arms of `case $command$previous in`: what may follow an option that takes a value. The empty
// COMPREPLY lets bash fall back to file names.
std::string bash_values(const CommandView& command, const std::string& function,
                        const std::string& prefix) {
  std::string arms;
  for (const OptionView& option : command.options) {
    if (option.names.empty() || option.value.empty()) {
      continue;
    }
    std::vector<std::string> patterns;
    for (const std::string& name : option.names) {
      patterns.push_back(fmt::format("'{} {}'", prefix, name));
    }
    arms += fmt::format("    {}) words={}; value=1 ;;\n", fmt::join(patterns, " | "),
                        bash_words(option, function));
  }
  return arms;
}

// What may stand where no option waits for its value.
std::string bash_arm(const CommandView& command, const std::string& function) {
  std::string words = fmt::format("'{} '", joined(option_names(command)));
  for (const OptionView& option : command.options) {
    if (option.names.empty()) {
      words += bash_words(option, function);
    }
  }
  return fmt::format("      {}) words={} ;;\n", command.name, words);
}

std::string bash_script(const CommandView& app) {
  const std::string function = function_name(app);
  std::string commands, values = bash_values(app, function, ""), arms;
  for (const CommandView& command : app.commands) {
    commands += commands.empty() ? command.name : "|" + command.name;
    values += bash_values(command, function, command.name);
    arms += bash_arm(command, function);
  }
  std::vector<std::string> first = option_names(app);
  for (const CommandView& command : app.commands) {
    first.push_back(command.name);
  }
  return fmt::format(
      R"(# bash completion for {app}
{function}_listed() {{
  "${{COMP_WORDS[0]}}" list "$1" 2>/dev/null | {names}
}}
{function}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command='' words='' value=0 index
  for ((index = 1; index < COMP_CWORD; index++)); do
    case ${{COMP_WORDS[index]}} in
      {commands}) command=${{COMP_WORDS[index]}}; break ;;
    esac
  done
  case "$command $previous" in
{values}  esac
  if ((!value)); then
    case $command in
{arms}      *) words='{first}' ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o default -F {function} {app}
)",
      fmt::arg("app", app.name), fmt::arg("function", function), fmt::arg("names", kNamesOfList),
      fmt::arg("commands", commands), fmt::arg("values", values), fmt::arg("arms", arms),
      fmt::arg("first", joined(first)));
}

// Square brackets and colons have a meaning inside the specifications of _arguments.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') {
      out += '\\';
    }
    out += letter == '\n' ? ' ' : letter;
  }
  return out;
}

std::string zsh_action(const OptionView& option, const std::string& function) {
  if (!option.topic.empty()) {
    return fmt::format("{{{}_listed {}{}}}", function, option.topic,
                       option.names.empty() ? "; _files" : "");
  }
  return option.choices.empty() ? "_files" : fmt::format("({})", joined(option.choices));
}

std::string zsh_arguments(const CommandView& command, const std::string& function,
                          const std::string& indent) {
  std::string lines;
  for (const OptionView& option : command.options) {
    for (const std::string& name : option.names) {
      std::string specification =
          fmt::format("{}{}[{}]", option.many ? "*" : "", name, zsh_text(option.description));
      if (!option.value.empty()) {
        specification +=
            fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option, function));
      }
      lines += fmt::format(" \\\n{}{}", indent, quoted(specification, R"('\'')"));
    }
    if (option.names.empty()) {
      const std::string specification =
          fmt::format("{}:{}:{}", option.many ? "*" : "", zsh_text(option.positional),
                      zsh_action(option, function));
      lines += fmt::format(" \\\n{}{}", indent, quoted(specification, R"('\'')"));
    }
  }
  return lines;
}

std::string zsh_script(const CommandView& app) {
  const std::string function = function_name(app);
  std::string commands, arms;
  for (const CommandView& command : app.commands) {
    const std::string described = zsh_text(command.name) + ":" + zsh_text(command.description);
    commands += fmt::format("    {}\n", quoted(described, R"('\'')"));
    arms += fmt::format("        {}) _arguments{} ;;\n", command.name,
                        zsh_arguments(command, function, "          "));
  }
  return fmt::format(
      R"zsh(#compdef {app}
{function}_listed() {{
  local -a names=(${{(f)"$($tool list $1 2>/dev/null | {names})"}})
  compadd -a names
}}
{function}() {{
  local tool=$words[1]
  local context state state_descr line
  typeset -A opt_args
  local -a commands=(
{commands}  )
  _arguments -C{options} \
    '1:command:->command' \
    '*::argument:->argument'
  case $state in
    command) _describe command commands ;;
    argument)
      case $words[1] in
{arms}      esac
      ;;
  esac
}}
{function} "$@"
)zsh",
      fmt::arg("app", app.name), fmt::arg("function", function), fmt::arg("names", kNamesOfList),
      fmt::arg("commands", commands), fmt::arg("options", zsh_arguments(app, function, "    ")),
      fmt::arg("arms", arms));
}

std::string fish_options(const CommandView& command, const CommandView& app,
                         const std::string& condition) {
  std::string lines;
  for (const OptionView& option : command.options) {
    std::string line = fmt::format("complete -c {} -n '{}'", app.name, condition);
    for (const std::string& name : option.names) {
      line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (!option.topic.empty()) {
      line += fmt::format(" {}-a '({}_listed {})'", option.names.empty() ? "" : "-x ",
                          function_name(app), option.topic);
    } else if (!option.choices.empty()) {
      line +=
          fmt::format(" {}-a '{}'", option.names.empty() ? "-f " : "-x ", joined(option.choices));
    } else if (option.names.empty()) {
      continue;  // file names: what fish does by itself
    } else if (!option.value.empty()) {
      line += " -r";
    }
    lines += line + " -d " + quoted(option.description, R"(\')") + "\n";
  }
  return lines;
}

std::string fish_script(const CommandView& app) {
  std::string script = fmt::format(
      "# fish completion for {}\n"
      "function {}_listed\n"
      "    set -l words (commandline -opc)\n"
      "    $words[1] list $argv 2>/dev/null | {}\n"
      "end\n",
      app.name, function_name(app), kNamesOfList);
  script += fish_options(app, app, "__fish_use_subcommand");
  for (const CommandView& command : app.commands) {
    script += fmt::format("complete -c {} -f -n '__fish_use_subcommand' -a {} -d {}\n", app.name,
                          command.name, quoted(command.description, R"(\')"));
    script +=
        fish_options(command, app, fmt::format("__fish_seen_subcommand_from {}", command.name));
  }
  return script;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  const CommandView view = view_of(app);
  if (shell == "bash") {
    return bash_script(view);
  }
  if (shell == "zsh") {
    return zsh_script(view);
  }
  if (shell == "fish") {
    return fish_script(view);
  }
  Diagnostic diagnostic;
  diagnostic.where.file = "completion " + shell;
  diagnostic.what = fmt::format("unknown shell '{}'", shell);
  diagnostic.allowed = "bash, zsh or fish";
  diagnostic.suggestion = nearest(shell, {"bash", "zsh", "fish"});
  throw UsageError({diagnostic});
}

}  // namespace lora_bench
