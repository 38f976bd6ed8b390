#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/status.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace lora_bench {

// What the command line asked for: the subcommand that was named sets `action`.
struct Invocation {
  std::vector<std::string> argv;
  bool colour_always = false;
  bool colour_never = false;
  std::string python;  // the interpreter of backends in Python, "" = not named
  std::function<ExitCode()> action;
};

// One file a subcommand; each adds itself to the app.
void add_run(CLI::App& app, Invocation& invocation);
void add_verify(CLI::App& app, Invocation& invocation);
void add_fuzz(CLI::App& app, Invocation& invocation);
void add_compare(CLI::App& app, Invocation& invocation);
void add_list(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_tune(CLI::App& app, Invocation& invocation);
void add_device(CLI::App& app, Invocation& invocation);
void add_report(CLI::App& app, Invocation& invocation);
void add_export(CLI::App& app, Invocation& invocation);
void add_check(CLI::App& app, Invocation& invocation);
// `completion SHELL` and `man`, which the install rules call too.
void add_documents(CLI::App& app, Invocation& invocation);

// What the parser of the command line does not say when it refuses one: which command, option or
// value was meant. Throws UsageError, or returns where the parser's own words have to do.
void refuse_misspelt(const CLI::App& app, const CLI::ParseError& error, int argc,
                     const char* const* argv);

// Parses and runs; the value main returns.
[[nodiscard]] int run_application(int argc, const char* const* argv);

}  // namespace lora_bench
