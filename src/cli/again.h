#pragma once

#include <functional>
#include <optional>

#include "core/status.h"
#include "run/run.h"

namespace lora_bench {

// Of `run --watch`: the same work again whenever a file of a plugin has changed, until somebody
// asks to end.

// Throws UsageError where no backend is a plugin, whose file could change, or rows are written to
// files, which each turn would begin anew.
void refuse_unwatchable(const RunRequest& request);

// Calls `turn`, waits until a file has changed since it began, and calls it again. Returns the last
// exit code when the program was asked to end, and earlier where a turn has left a thread behind or
// a plugin is a shared library, which can be loaded but once: a process that begins anew goes on.
// What `turn` throws of a plugin that cannot be used is printed.
ExitCode run_at_changes(const RunRequest& request, const std::function<ExitCode()>& turn);

// The same for the process that starts those. Nothing where `start` says that there is none to be
// started.
std::optional<ExitCode> start_at_changes(const RunRequest& request,
                                         const std::function<std::optional<ExitCode>()>& start);

}  // namespace lora_bench
