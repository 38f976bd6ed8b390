#pragma once

#include <memory>

#include "ops/backends.h"

namespace lora_bench::test {

struct OwnCpu {
  std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = 1, .isa = ""});
};

// Does as the cpu backend does, on one core, but for what the class of a test overrides.
class AroundCpu : private OwnCpu, public BackendAround {
 public:
  AroundCpu() : BackendAround(*cpu) {}
  [[nodiscard]] std::string_view summary() const override { return "for tests"; }
  [[nodiscard]] Support supports(const Problem&, const DeviceFacts&) const override { return {}; }
};

}  // namespace lora_bench::test
