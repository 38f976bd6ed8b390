#pragma once

#include <functional>
#include <span>
#include <vector>

#include "device/cuda_handles.h"

namespace lora_bench {

// What `enqueue` puts on `stream`, as a graph that is ready to be launched. Kernels must have been
// launched once before: loading them cannot be recorded.
[[nodiscard]] CudaGraphExec record_graph(const std::function<void()>& enqueue, cudaStream_t stream);
// What it puts on the streams of several GPUs, a graph for each: GPU i has stream i.
[[nodiscard]] std::vector<CudaGraphExec> record_graphs(const std::function<void()>& enqueue,
                                                       std::span<const cudaStream_t> streams);

}  // namespace lora_bench
