#include "verify/diagnose.h"

namespace lora_bench {

Hypothesis diagnose(const Problem&, const Tensors&, const Numerics&, const void*,
                    const Comparison&) {
  return {};
}

}  // namespace lora_bench
