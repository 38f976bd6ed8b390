#pragma once

#include <library_types.h>

#include "core/dtype.h"

namespace lora_bench {

// As cuBLAS and cuBLASLt name it. Throws CaseError of what they are not asked for.
[[nodiscard]] cudaDataType_t cublas_type(Dtype dtype);

}  // namespace lora_bench
