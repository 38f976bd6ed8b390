#include "core/status.h"

#include <stdexcept>

namespace lora_bench {
namespace {

int severity(ExitCode code) {
  switch (code) {
    case ExitCode::kPass:
      return 0;
    case ExitCode::kInconclusive:
      return 1;
    case ExitCode::kRegression:
      return 2;
    case ExitCode::kWrongResult:
      return 3;
    case ExitCode::kEnvironment:
      return 4;
    case ExitCode::kUsage:
      return 5;
  }
  throw std::logic_error("exit code outside the enumeration");
}

}  // namespace

ExitCode exit_code(Status status) {
  switch (status) {
    case Status::kPassed:
    case Status::kSkipped:
      return ExitCode::kPass;
    case Status::kFailed:
    case Status::kHung:
    case Status::kError:
      return ExitCode::kWrongResult;
    case Status::kMistrusted:
    case Status::kInvalid:
      return ExitCode::kInconclusive;
  }
  throw std::logic_error("status outside the enumeration");
}

ExitCode worse(ExitCode left, ExitCode right) {
  return severity(left) >= severity(right) ? left : right;
}

}  // namespace lora_bench
