#pragma once

#include <functional>

#include "device/cuda_handles.h"

namespace lora_bench {

// What `enqueue` puts on `stream`, as a graph that is ready to be launched. Kernels must have been
// launched once before: loading them cannot be recorded.
[[nodiscard]] CudaGraphExec record_graph(const std::function<void()>& enqueue, cudaStream_t stream);

}  // namespace lora_bench
