#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "ops/backends.h"

// The cpu backend with a test looking on, which may keep it from working or spoil what it did.
class ObservedBackend final : public lora_bench::Backend {
 public:
  // Whether it works at all.
  using Before = std::function<bool(const lora_bench::Problem&, const lora_bench::Operands&)>;
  using After = std::function<void(const lora_bench::Problem&, const lora_bench::Operands&)>;
  struct Hooks {
    Before before = {};
    After after = {};
  };
  explicit ObservedBackend(Hooks hooks) : hooks_(std::move(hooks)) {}

  [[nodiscard]] std::string_view name() const override { return "observed"; }
  [[nodiscard]] std::string_view summary() const override { return "for tests"; }
  [[nodiscard]] lora_bench::Space space() const override { return lora_bench::Space::kHost; }
  [[nodiscard]] lora_bench::Support supports(const lora_bench::Problem&,
                                             const lora_bench::DeviceFacts&) const override {
    return {};
  }
  [[nodiscard]] lora_bench::Numerics numerics(const lora_bench::Problem& problem) const override {
    return cpu_->numerics(problem);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const lora_bench::Problem&) const override {
    return 0;
  }
  void launch(const lora_bench::Problem& problem, const lora_bench::Operands& operands,
              lora_bench::Stream stream) const override {
    if (hooks_.before && !hooks_.before(problem, operands)) {
      return;
    }
    cpu_->launch(problem, operands, stream);
    if (hooks_.after) {
      hooks_.after(problem, operands);
    }
  }

 private:
  Hooks hooks_;
  std::unique_ptr<lora_bench::Backend> cpu_ = lora_bench::make_cpu_backend({1, ""});
};
