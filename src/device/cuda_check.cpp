#ifdef LORA_BENCH_HAVE_CUDA

#include "device/cuda_check.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "core/error.h"

namespace lora_bench {
namespace {

std::string describe(cudaError_t result, std::string_view call, std::string_view file, int line) {
  const std::size_t slash = file.rfind('/');
  return fmt::format("{}:{}: {}: {} ({})", file.substr(slash == file.npos ? 0 : slash + 1), line,
                     call.substr(0, call.find('(')), cudaGetErrorString(result),
                     cudaGetErrorName(result));
}

}  // namespace

bool is_sticky(cudaError_t result) noexcept {
  switch (result) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemNotReady:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

void check_cuda(cudaError_t result, const char* call, const char* file, int line) {
  if (result == cudaSuccess) {
    return;
  }
  cudaGetLastError();
  const std::string message = describe(result, call, file, line);
  if (is_sticky(result)) {
    throw EnvironmentError(message);
  }
  throw CaseError(message);
}

void report_cuda(cudaError_t result, const char* call, const char* file, int line) noexcept {
  // At exit the runtime may be gone before the last buffer: nothing is lost then.
  if (result == cudaSuccess || result == cudaErrorCudartUnloading) {
    return;
  }
  cudaGetLastError();
  std::fprintf(stderr, "lora-bench: %s:%d: %s: %s\n", file, line, call, cudaGetErrorString(result));
}

}  // namespace lora_bench

#endif
