#pragma once

#include <cuda_runtime_api.h>

namespace lora_bench {

// Throws when a CUDA call failed, with its text and place: EnvironmentError when the device is lost
// for this process (the error is sticky: every later call would fail too), else CaseError. The
// pending error is cleared, so that a later launch is not blamed for it.
void check_cuda(cudaError_t result, const char* call, const char* file, int line);

// For destructors: reports on stderr instead of throwing.
void report_cuda(cudaError_t result, const char* call, const char* file, int line) noexcept;

// Errors after which no CUDA call of this process can succeed.
[[nodiscard]] bool is_sticky(cudaError_t result) noexcept;

}  // namespace lora_bench

#define LORA_BENCH_CUDA_CHECK(call) ::lora_bench::check_cuda((call), #call, __FILE__, __LINE__)
#define LORA_BENCH_CUDA_REPORT(call) ::lora_bench::report_cuda((call), #call, __FILE__, __LINE__)
