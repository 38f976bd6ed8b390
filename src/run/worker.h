#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "run/run.h"
#include "scenario/case.h"

namespace lora_bench {

// The child's side of --isolate and of fuzz: a process whose end takes no row along but the one in
// hand. It talks over descriptors that a kernel's printf does not reach. A request is
// a line that begins with a random word; an answer is a line that begins with its kind and that
// word, 0 where nothing was asked yet:
//   s 0 SPACE WHY_NOT         ready: host or cuda, and why the backend it was started for cannot
//                             be used here
//   u 0 MESSAGE               refused: a UsageError
//   h 0 MESSAGE               hung while it loaded the backend; the worker ends
//   r WORD ROW, i WORD ROW    a row as JSON; i = sampling was interrupted
//   e WORD MESSAGE            an EnvironmentError; the worker ends
constexpr int kRequestDescriptor = 3;
constexpr int kAnswerDescriptor = 4;
constexpr int kCallDescriptor = 5;  // memory shared with the parent: the Call in hand (watch.h)

// A request is "SCENARIO CASE", two numbers.
[[nodiscard]] ExitCode serve_rows(const RunRequest& request);

// A request is a case that no file holds and a backend to prove on it, not to time; one that ran
// nothing before when it says so. Those in `spellings` are made before it is ready, others when
// they are first asked for, and have so long to load. The groundwork of a case serves its backends
// one after the other.
[[nodiscard]] ExitCode serve_cases(const std::vector<std::string>& spellings, double timeout_s);
[[nodiscard]] std::string request_for_case(const Case& spec, const std::string& spelling,
                                           bool fresh_backend);

}  // namespace lora_bench
