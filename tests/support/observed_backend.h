#pragma once

#include <functional>
#include <utility>

#include "support/around_cpu.h"

// The cpu backend with a test looking on, which may keep it from working or spoil what it did.
class ObservedBackend final : public lora_bench::test::AroundCpu {
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
  [[nodiscard]] std::int64_t workspace_bytes(const lora_bench::Problem&) const override {
    return 0;
  }
  void launch(const lora_bench::Problem& problem, const lora_bench::Operands& operands,
              lora_bench::Stream stream) const override {
    if (hooks_.before && !hooks_.before(problem, operands)) {
      return;
    }
    inner().launch(problem, operands, stream);
    if (hooks_.after) {
      hooks_.after(problem, operands);
    }
  }

 private:
  Hooks hooks_;
};
