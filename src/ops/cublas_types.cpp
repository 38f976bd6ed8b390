#ifdef LORA_BENCH_HAVE_CUBLAS

#include "ops/cublas_types.h"

#include <fmt/format.h>

#include "core/error.h"

namespace lora_bench {

cudaDataType_t cublas_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return CUDA_R_32F;
    case Dtype::kBf16:
      return CUDA_R_16BF;
    case Dtype::kFp16:
      return CUDA_R_16F;
    default:
      throw CaseError(fmt::format("cuBLAS is not asked for {}", name(dtype)));
  }
}

}  // namespace lora_bench

#endif
