#pragma once

#include <memory>

#include "device/gpu_group.h"
#include "ops/backend.h"

namespace lora_bench {

// The same backend for a shard on one GPU of a group: launches on that GPU and its stream, whatever
// stream it is given. It must have been made while that GPU was the current one.
[[nodiscard]] std::shared_ptr<const Backend> on_gpu(std::shared_ptr<const Backend> backend,
                                                    std::shared_ptr<const GpuGroup> gpus,
                                                    std::int64_t rank);

}  // namespace lora_bench
