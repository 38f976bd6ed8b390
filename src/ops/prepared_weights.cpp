#include <algorithm>

#include "ops/backends.h"

namespace lora_bench {
namespace {

class PreparedInEachLaunch final : public BackendAround {
 public:
  using BackendAround::BackendAround;

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    if (operands.prepared != nullptr) {
      prepare_weights(inner(), problem, operands, stream);
    }
    inner().launch(problem, operands, stream);
  }
};

}  // namespace

std::int64_t prepared_bytes(const Backend& backend, const Problem& problem) {
  return backend.prepared_bytes(weights_alone(problem));
}

void prepare_weights(const Backend& backend, const Problem& problem, const Operands& operands,
                     Stream stream) {
  backend.prepare(weights_alone(problem), weights_alone(operands), stream);
}

ScratchBytes scratch_bytes(const Backend& backend, const Problem& problem) {
  return {backend.workspace_bytes(problem), prepared_bytes(backend, problem)};
}

ScratchBytes largest_of(const ScratchBytes& one, const ScratchBytes& other) {
  return {std::max(one.workspace, other.workspace), std::max(one.prepared, other.prepared)};
}

std::unique_ptr<Backend> preparing_in_each_launch(const Backend& backend) {
  return std::make_unique<PreparedInEachLaunch>(backend);
}

}  // namespace lora_bench
