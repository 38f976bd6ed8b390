#pragma once

#include <memory>

#include "ops/backend.h"

namespace lora_bench {

// What multiplies by the base weights of a layer: op shrink of one adapter whose A is W, rank all
// of its rows, every row of the batch its own; h is x W^T in the dtype of the intermediate. On a
// host the cpu backend; on a device a kernel of our own (ops/streamed_product.h) or cuBLASLt, which
// adds the bias of the problem in its epilogue and, where the problem adds inputs, y, [tokens,
// max_rank] in the dtype of h. Throws EnvironmentError where there is none.
[[nodiscard]] std::unique_ptr<Backend> make_base_product(
    Space space, BaseAlgorithm algorithm = BaseAlgorithm::kAuto);

// Whether a problem's bias and y are added by the product itself.
[[nodiscard]] bool base_product_adds_bias(Space space);

}  // namespace lora_bench
