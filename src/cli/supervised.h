#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "run/run.h"

namespace lora_bench {

// A plugin can end the program from within any call, with whatever exit code. So where one is to be
// called, this program is started once more to do the work, and waits: a child that ends without
// having said so has not done it.

// What the command makes, and so what is left of it: rows as --out has them, or nothing more.
enum class Makes : std::uint8_t { kRows, kOther };

// The exit code of that child, which is ended by force where it has done its work and does not
// leave within ten seconds; nothing when the work is to be done here: no plugin is called in this
// process, this is the child, or a debugger watches this process.
[[nodiscard]] std::optional<ExitCode> supervised(const RunRequest& request,
                                                 const std::vector<std::string>& argv, Makes makes);

// The hidden first word by which the child knows itself.
constexpr const char* kSupervisedFlag = "--supervised";
// In the child, before any work. Throws EnvironmentError where there is no supervisor.
void join_supervisor();
// In the child, when nothing but the end of the program follows.
void tell_supervisor(int exit_code);

}  // namespace lora_bench
