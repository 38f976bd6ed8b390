#include "device/memory.h"
#include "ops/backends.h"

namespace lora_bench {
namespace {

class PreparedInEachLaunch final : public Backend {
 public:
  explicit PreparedInEachLaunch(const Backend& backend) : backend_(backend) {}

  [[nodiscard]] std::string_view name() const override { return backend_.name(); }
  [[nodiscard]] std::string_view summary() const override { return backend_.summary(); }
  [[nodiscard]] Space space() const override { return backend_.space(); }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    return backend_.supports(problem, device);
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    return backend_.numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    const std::int64_t prepared = backend_.prepared_bytes(problem);
    return prepared == 0 ? backend_.workspace_bytes(problem) : begin(problem) + prepared;
  }
  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    if (backend_.prepared_bytes(problem) == 0) {
      backend_.launch(problem, operands, stream);
      return;
    }
    Operands prepared = operands;
    prepared.prepared = static_cast<std::byte*>(operands.workspace) + begin(problem);
    backend_.prepare(problem, weights_alone(prepared), stream);
    backend_.launch(problem, prepared, stream);
  }
  [[nodiscard]] bool slow_to_launch() const override { return backend_.slow_to_launch(); }

 private:
  // Behind the workspace of the backend, in bytes.
  [[nodiscard]] std::int64_t begin(const Problem& problem) const {
    const std::int64_t own = backend_.workspace_bytes(problem);
    return (own + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  }

  const Backend& backend_;
};

}  // namespace

std::unique_ptr<Backend> preparing_in_each_launch(const Backend& backend) {
  return std::make_unique<PreparedInEachLaunch>(backend);
}

}  // namespace lora_bench
