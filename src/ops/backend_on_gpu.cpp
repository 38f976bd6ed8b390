#include "ops/backends.h"

#include <utility>

namespace lora_bench {
namespace {

class BackendOnGpu final : public Backend {
 public:
  BackendOnGpu(std::shared_ptr<const Backend> inner, std::shared_ptr<const GpuGroup> gpus,
               std::int64_t rank)
      : inner_(std::move(inner)), gpus_(std::move(gpus)), rank_(rank) {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] std::string_view summary() const override { return inner_->summary(); }
  [[nodiscard]] Space space() const override { return inner_->space(); }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts& device) const override {
    const CurrentGpu current(gpu());
    return inner_->supports(problem, device);
  }
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    const CurrentGpu current(gpu());
    return inner_->numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem& problem) const override {
    const CurrentGpu current(gpu());
    return inner_->workspace_bytes(problem);
  }
  [[nodiscard]] std::int64_t prepared_bytes(const Problem& problem) const override {
    const CurrentGpu current(gpu());
    return inner_->prepared_bytes(problem);
  }
  void prepare(const Problem& problem, const Operands& operands, Stream) const override {
    const CurrentGpu current(gpu());
    inner_->prepare(problem, operands, own());
  }
  [[nodiscard]] bool slow_to_launch() const override { return inner_->slow_to_launch(); }
  void launch(const Problem& problem, const Operands& operands, Stream) const override {
    const CurrentGpu current(gpu());
    inner_->launch(problem, operands, own());
  }
  [[nodiscard]] bool zeroes(const Problem& problem) const override {
    return inner_->zeroes(problem);
  }
  void launch_zero(const Problem& problem, const Operands& operands, Stream) const override {
    const CurrentGpu current(gpu());
    inner_->launch_zero(problem, operands, own());
  }

 private:
  [[nodiscard]] int gpu() const { return static_cast<int>(rank_); }
  [[nodiscard]] Stream own() const { return {gpus_->stream(rank_)}; }

  std::shared_ptr<const Backend> inner_;
  std::shared_ptr<const GpuGroup> gpus_;
  std::int64_t rank_;
};

}  // namespace

std::shared_ptr<const Backend> on_gpu(std::shared_ptr<const Backend> backend,
                                      std::shared_ptr<const GpuGroup> gpus, std::int64_t rank) {
  return std::make_shared<BackendOnGpu>(std::move(backend), std::move(gpus), rank);
}

}  // namespace lora_bench
