#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <clocale>
#include <cstdlib>
#include <filesystem>

#include "cli/invocation.h"
#include "cli/supervised.h"
#include "cli/terminal.h"
#include "core/error.h"
#include "core/version.h"
#include "device/facts.h"
#include "device/memory.h"
#include "run/select.h"
#include "run/watch.h"

namespace lora_bench {
namespace {

std::string version_text() {
  const BuildFacts& build = build_facts();
  return fmt::format("lora-bench {} (commit {}{}, {})\ncompiled by {}; CUDA {}{}\nwith {}\n",
                     build.version, build.commit, build.dirty ? ", modified" : "", build.build_type,
                     build.compiler, build.cuda_compiler,
                     build.cuda_architectures.empty()
                         ? ""
                         : fmt::format(" for {}", architectures_text(build.cuda_architectures)),
                     build.dependencies);
}

void add_options(CLI::App& app, Invocation& invocation) {
  app.set_version_flag("--version", version_text());
  app.add_option_function<std::string>(
         "--color",
         [&invocation](const std::string& when) {
           invocation.colour_always = when == "always";
           invocation.colour_never = when == "never";
         },
         "auto (a terminal and no NO_COLOR), always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN");
  app.add_option("--python", invocation.python,
                 "the interpreter that backends in Python run in; without it LORA_BENCH_PYTHON, "
                 "that of an activated environment or of the one that lora-bench lies in, or "
                 "python3")
      ->type_name("FILE");
  app.add_flag(kSupervisedFlag)->group("");  // cli/supervised.h
  add_run(app, invocation);
  add_verify(app, invocation);
  add_fuzz(app, invocation);
  add_compare(app, invocation);
  add_plan(app, invocation);
  add_tune(app, invocation);
  add_list(app, invocation);
  add_device(app, invocation);
  add_report(app, invocation);
  add_export(app, invocation);
  add_check(app, invocation);
  add_documents(app, invocation);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 pass, 1 usage or scenario error, 2 wrong result, 3 regression or threshold\n"
      "missed, 4 inconclusive, 5 device or environment.\n"
      "Begin with: lora-bench run smoke");
}

// Said to all that ask later, and to the processes that this one starts, by LORA_BENCH_PYTHON.
void choose_python(const std::string& named) {
  namespace fs = std::filesystem;
  constexpr const char* kVariable = "LORA_BENCH_PYTHON";
  if (!named.empty()) {
    ::setenv(kVariable, named.c_str(), 1);
    return;
  }
  if (std::getenv("VIRTUAL_ENV") != nullptr || std::getenv("CONDA_PREFIX") != nullptr) {
    return;  // an activated environment has its python3 on the PATH
  }
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path beside = folder / "python3";
  if (fs::exists(folder.parent_path() / "pyvenv.cfg", error) && fs::exists(beside, error)) {
    ::setenv(kVariable, beside.c_str(), 0);
  }
}

ExitCode guarded(const std::function<ExitCode()>& action) {
  try {
    return action();
  } catch (const UsageError& error) {
    print_note(error.what());
    return ExitCode::kUsage;
  } catch (const EnvironmentError& error) {
    print_note(fmt::format("lora-bench: {}", error.what()));
    return ExitCode::kEnvironment;
  } catch (const LoadingHung& error) {
    print_note(error.what());
    return ExitCode::kWrongResult;
  } catch (const std::bad_alloc&) {
    print_note("lora-bench: out of memory");
    return ExitCode::kEnvironment;
  } catch (const std::exception& error) {
    print_note(fmt::format("lora-bench: {}", error.what()));
    return ExitCode::kEnvironment;
  }
}

}  // namespace

int run_application(int argc, const char* const* argv) {
  std::setlocale(LC_ALL, "C");  // decimals are written with a point everywhere
  install_signal_handlers();
  keep_freed_memory();
  CLI::App app("Proves and times multi-LoRA kernels beside the physical floor of the machine.",
               "lora-bench");
  Invocation invocation;
  invocation.argv.assign(argv, argv + argc);
  add_options(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      return app.exit(error);  // --help and --version
    }
    return static_cast<int>(guarded([&] {
      refuse_misspelt(app, error, argc, argv);
      app.exit(error);
      return ExitCode::kUsage;
    }));
  }
  choose_python(invocation.python);
  const bool child = app.count(kSupervisedFlag) > 0;
  if (child) {
    invocation.argv.erase(invocation.argv.begin() + 1);
  }
  const int code = static_cast<int>(guarded([&] {
    if (child) {
      join_supervisor();
    }
    return invocation.action();
  }));
  std::fflush(nullptr);
  tell_supervisor(code);
  if (any_abandoned()) {
    // A hung backend still holds its thread: destructors would wait for it or pull its memory away.
    std::_Exit(code);
  }
  return code;
}

}  // namespace lora_bench
