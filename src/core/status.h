#pragma once

#include <cstdint>

#include "core/named.h"

namespace lora_bench {

enum class Status : std::uint8_t {
  kPassed,      // proved, and timed if timing was asked
  kFailed,      // a wrong result
  kMistrusted,  // compared, but the comparison proves too little
  kSkipped,     // not run; the message says why
  kInvalid,     // proved, but the time is below the physical floor
  kHung,        // did not return before the watchdog
  kError,       // the backend threw
};
template <>
struct EnumNames<Status> {
  static constexpr std::array<std::string_view, 7> kNames{
      "PASSED", "FAILED", "MISTRUSTED", "SKIPPED", "INVALID", "HUNG", "ERROR"};
};

// The interface to CI; docs/exit-codes.md is its page.
enum class ExitCode : std::uint8_t {
  kPass = 0,
  kUsage = 1,
  kWrongResult = 2,
  kRegression = 3,
  kInconclusive = 4,
  kEnvironment = 5,
};

// The exit code one row asks for. FAILED, HUNG, ERROR -> kWrongResult; INVALID, MISTRUSTED ->
// kInconclusive; PASSED and SKIPPED -> kPass (a run in which nothing passed is judged by the run).
[[nodiscard]] ExitCode exit_code(Status status);

// The worse of two: environment, wrong result, regression, inconclusive, pass. (kUsage never meets
// the others: it ends the program before work starts.)
[[nodiscard]] ExitCode worse(ExitCode left, ExitCode right);

}  // namespace lora_bench
