#include "device/memory.h"
#include "ops/backends.h"

namespace lora_bench {
namespace {

class PreparedInEachLaunch final : public BackendAround {
 public:
  using BackendAround::BackendAround;

  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    const std::int64_t prepared = lora_bench::prepared_bytes(inner(), problem);
    return prepared == 0 ? inner().workspace_bytes(problem) : begin(problem) + prepared;
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    if (lora_bench::prepared_bytes(inner(), problem) == 0) {
      inner().launch(problem, operands, stream);
      return;
    }
    Operands prepared = operands;
    prepared.prepared = static_cast<std::byte*>(operands.workspace) + begin(problem);
    prepare_weights(inner(), problem, prepared, stream);
    inner().launch(problem, prepared, stream);
  }
  // Nobody else has anything to prepare.
  [[nodiscard]] std::int64_t prepared_bytes(const Problem&) const override { return 0; }
  void prepare(const Problem&, const Operands&, Stream) const override {}

 private:
  // Behind the workspace of the backend, in bytes.
  [[nodiscard]] std::int64_t begin(const Problem& problem) const {
    const std::int64_t own = inner().workspace_bytes(problem);
    return (own + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
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

std::unique_ptr<Backend> preparing_in_each_launch(const Backend& backend) {
  return std::make_unique<PreparedInEachLaunch>(backend);
}

}  // namespace lora_bench
