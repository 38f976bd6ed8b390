#pragma once

#include "core/status.h"
#include "run/run.h"

namespace lora_bench {

// The child's side of --isolate: one backend in a process of its own, whose end takes no other row
// along. It talks over descriptors that a kernel's printf does not reach. A request is a line
// "SCENARIO CASE", two numbers; an answer is a line that begins with its kind:
//   s SPACE WHY_NOT   ready: host or cuda, and why the backend cannot be used here
//   u MESSAGE         refused: a UsageError
//   r ROW, i ROW      a row as JSON; i = sampling was interrupted
//   e MESSAGE         an EnvironmentError; the worker ends
constexpr int kRequestDescriptor = 3;
constexpr int kAnswerDescriptor = 4;
constexpr int kCallDescriptor = 5;  // memory shared with the parent: the Call in hand (watch.h)

[[nodiscard]] ExitCode serve_rows(const RunRequest& request);

}  // namespace lora_bench
