#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command_view.h"
#include "cli/invocation.h"
#include "cli/terminal.h"
#include "core/version.h"

namespace lora_bench {

namespace {

// In roff a backslash starts an escape, a hyphen may be broken at, and a line that begins with a
// dot or an apostrophe is a request.
std::string roff(const std::string& text) {
  std::string out;
  bool line_start = true;
  for (const char letter : text) {
    if (line_start && (letter == '.' || letter == '\'')) {
      out += "\\&";
    }
    if (letter == '\\') {
      out += "\\e";
    } else if (letter == '-') {
      out += "\\-";
    } else {
      out += letter;
    }
    line_start = letter == '\n';
  }
  return out;
}

std::string option_term(const OptionView& option) {
  std::string term;
  for (const std::string& name : option.names) {
    term += fmt::format("{}\\fB{}\\fR", term.empty() ? "" : ", ", roff(name));
  }
  if (option.names.empty()) {
    term = fmt::format("\\fI{}\\fR", roff(option.positional));
  } else if (!option.value.empty()) {
    term += fmt::format(" \\fI{}\\fR", roff(option.value));
  }
  return term;
}

std::string option_list(const CommandView& command) {
  std::string text;
  for (const OptionView& option : command.options) {
    text += fmt::format(".TP\n{}\n{}", option_term(option), roff(option.description));
    if (!option.choices.empty()) {
      text += roff(fmt::format(" ({})", fmt::join(option.choices, ", ")));
    }
    text += option.required ? " Required.\n" : "\n";
  }
  return text;
}

std::string synopsis(const CommandView& command) {
  std::string line = "[\\fIOPTIONS\\fR]";
  for (const OptionView& option : command.options) {
    if (option.names.empty()) {
      const std::string word =
          fmt::format("\\fI{}\\fR{}", roff(option.positional), option.many ? "..." : "");
      line += option.required ? " " + word : " [" + word + "]";
    }
  }
  return line;
}

}  // namespace

std::string man_page(const CLI::App& app) {
  const CommandView view = view_of(app);
  std::string page = fmt::format(
      ".TH LORA\\-BENCH 1 \"\" \"lora\\-bench {}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n",
      build_facts().version, roff(view.name), roff(view.description));
  for (const CommandView& command : view.commands) {
    page += fmt::format("\\fB{} {}\\fR {}\n.br\n", roff(view.name), roff(command.name),
                        synopsis(command));
  }
  page += ".SH OPTIONS\n" + option_list(view) + ".SH COMMANDS\n";
  for (const CommandView& command : view.commands) {
    page += fmt::format(".SS {}\n{}\n{}", roff(command.name), roff(command.description),
                        option_list(command));
    if (!command.footer.empty()) {
      page += ".PP\n" + roff(command.footer) + "\n";
    }
  }
  if (!view.footer.empty()) {
    page += ".SH NOTES\n.nf\n" + roff(view.footer) + "\n.fi\n";
  }
  return page;
}

void add_documents(CLI::App& app, Invocation& invocation) {
  CLI::App* completion = app.add_subcommand("completion", "print a shell completion script");
  const auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&app, shell, &invocation] {
    invocation.action = [&app, shell] {
      print_result(completion_script(app, *shell));
      return ExitCode::kPass;
    };
  });
  CLI::App* man = app.add_subcommand("man", "print the manual page, for man(1)");
  man->callback([&app, &invocation] {
    invocation.action = [&app] {
      print_result(man_page(app));
      return ExitCode::kPass;
    };
  });
}

}  // namespace lora_bench
