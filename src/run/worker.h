#pragma once

#include <string>

#include "core/status.h"
#include "run/run.h"
#include "scenario/case.h"

namespace lora_bench {

// The child's side of --isolate and of fuzz: one backend in a process of its own, whose end takes
// no other row along. It talks over descriptors that a kernel's printf does not reach. A request is
// a line that begins with a random word; an answer is a line that begins with its kind and that
// word, 0 where nothing was asked yet:
//   s 0 SPACE WHY_NOT         ready: host or cuda, and why the backend cannot be used here
//   u 0 MESSAGE               refused: a UsageError
//   r WORD ROW, i WORD ROW    a row as JSON; i = sampling was interrupted
//   e WORD MESSAGE            an EnvironmentError; the worker ends
constexpr int kRequestDescriptor = 3;
constexpr int kAnswerDescriptor = 4;
constexpr int kCallDescriptor = 5;  // memory shared with the parent: the Call in hand (watch.h)

// A request is "SCENARIO CASE", two numbers.
[[nodiscard]] ExitCode serve_rows(const RunRequest& request);

// A request is a case that no file holds, to be proved and not timed; on a backend that ran nothing
// before when it says so.
[[nodiscard]] ExitCode serve_cases(const std::string& spelling);
[[nodiscard]] std::string request_for_case(const Case& spec, bool fresh_backend);

}  // namespace lora_bench
