#include "ops/backends.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "ops/cpu_kernels.h"
#include "ops/cpu_products.h"
#include "ops/idle_rows.h"
#include "ops/thread_pool.h"

namespace lora_bench {
namespace {

bool has_kernels(Dtype dtype) {
  return dtype == Dtype::kFp32 || dtype == Dtype::kBf16 || dtype == Dtype::kFp16;
}

// By src/plan, as a host engine would.
class CpuMetadata final : public MetadataBuilder {
 public:
  [[nodiscard]] Support supports(const MetadataProblem&, const DeviceFacts&) const override {
    return {};
  }
  void launch(const MetadataProblem& problem, const ArrayOperands& operands,
              Stream) const override {
    const std::vector<FilledArray> made =
        make_metadata(problem, engine_at(problem, operands.inputs));
    const std::vector<MetadataArray> outputs = outputs_of(problem);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      put_filled(outputs[i], static_cast<std::byte*>(operands.outputs[i]), made[i]);
    }
  }
};

class CpuBackend : public Backend {
 public:
  CpuBackend(const CpuKernels& kernels, int threads)
      : kernels_(kernels),
        own_pool_(threads > 0 ? std::make_unique<ThreadPool>(threads) : nullptr) {}

  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  [[nodiscard]] std::string_view summary() const override { return kCpuSummary; }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] const MetadataBuilder* metadata() const override { return &metadata_; }
  [[nodiscard]] const Quantiser* quantiser() const override { return quantiser_.get(); }

  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts&) const override {
    for (std::size_t role = 0; role < problem.dtype.of_role.size(); ++role) {
      const Dtype dtype = problem.dtype.of_role[role];
      if (!has_kernels(dtype) && !problem.has_scales(static_cast<Role>(role))) {
        return {false, fmt::format("cpu has no kernels for {}; it has fp32, bf16 and fp16",
                                   lora_bench::name(dtype))};
      }
    }
    return takes_semantics(problem, kAllSemantics);
  }

  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics;
    const auto width = static_cast<std::uint64_t>(kernels_.width);
    const auto halvings = static_cast<std::int64_t>(std::bit_width(width)) - 1;
    if (has_shrink(problem.op)) {
      numerics.shrink_depth = (problem.in_features + kernels_.width - 1) / kernels_.width +
                              halvings + (problem.adds_to_h() ? 1 : 0);
    }
    if (has_expand(problem.op)) {
      numerics.expand_depth =
          problem.max_rank + (problem.bias ? 1 : 0) + (problem.add_inputs ? 1 : 0);
    }
    numerics.intermediate = problem.kept_h();
    numerics.summation =
        fmt::format("over K in {} interleaved fp32 sums, then by halves; over the rank one by one",
                    kernels_.width);
    return numerics;
  }

  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }

  void launch(const Problem& problem, const Operands& operands, Stream) const override {
    ThreadPool& pool = own_pool_ != nullptr ? *own_pool_ : shared_thread_pool();
    const CpuSlices slices = cpu_slices(problem);
    const CpuLaunch launch{problem, operands, kernels_, slices};
    if (has_shrink(problem.op)) {
      const std::vector<CpuItem> items = shrink_items(launch, pool.threads());
      pool.run(static_cast<std::int64_t>(items.size()), [&](std::int64_t item) {
        shrink_item(launch, items[static_cast<std::size_t>(item)]);
      });
    }
    if (problem.zeroes_idle_rows()) {
      constexpr std::int64_t kRows = 64;
      pool.run((problem.tokens + kRows - 1) / kRows, [&](std::int64_t block) {
        zero_idle_rows(problem, operands, block * kRows,
                       std::min((block + 1) * kRows, problem.tokens));
      });
    }
    if (has_expand(problem.op)) {
      const std::vector<CpuItem> items = expand_items(launch, pool.threads());
      pool.run(static_cast<std::int64_t>(items.size()), [&](std::int64_t item) {
        expand_item(launch, items[static_cast<std::size_t>(item)]);
      });
    }
  }

 private:
  const CpuKernels& kernels_;
  std::unique_ptr<ThreadPool> own_pool_;
  CpuMetadata metadata_;
  std::unique_ptr<Quantiser> quantiser_ = make_cpu_quantiser();
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  const CpuKernels* kernels =
      options.isa.empty() ? &cpu_kernels() : cpu_kernels(options.isa.c_str());
  if (kernels == nullptr) {
    throw UsageError(
        fmt::format("this processor or build has no {} for the cpu backend; "
                    "baseline always works",
                    options.isa));
  }
  return std::make_unique<CpuBackend>(*kernels, options.threads);
}

}  // namespace lora_bench
