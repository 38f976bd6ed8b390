#include <CLI/CLI.hpp>
#include <memory>

#include "cli/completion.h"
#include "cli/invocation.h"
#include "cli/terminal.h"

namespace lora_bench {

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
