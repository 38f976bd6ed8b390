#include "ops/backends.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include <algorithm>

#include "device/cuda_check.h"
#include "kernels/measure/probes.h"
#include "ops/kernel_params.h"
#else
#include "core/error.h"
#endif

namespace lora_bench {
#ifdef LORA_BENCH_HAVE_CUDA
namespace {

using kernels::TouchParams;

constexpr std::int64_t kSinkBytes = 256;

// The rank of all active slots; 0 where they differ.
std::int64_t uniform_rank(const Problem& problem) {
  std::int64_t common = -1;
  for (const std::int32_t slot : problem.plan.active_ids) {
    const std::int64_t rank = problem.rank[static_cast<std::size_t>(slot)];
    if (common >= 0 && rank != common) {
      return 0;
    }
    common = rank;
  }
  return std::max<std::int64_t>(common, 0);
}

void add_weights(TouchParams& params, const Problem& problem, const Operands& operands) {
  const auto size = [&](Role role) { return size_bytes(problem.dtype[role]); };
  const auto add = [&](const void* data, std::int64_t slot, std::int64_t lane,
                       std::int64_t period) {
    if (data != nullptr) {
      params.part[params.parts++] = {data, slot, lane, period};
    }
  };
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    const std::int64_t width = problem.widths[slice];
    if (width == 0) {
      continue;  // nothing needs its A
    }
    if (has_shrink(problem.op)) {
      const std::int64_t lane = problem.in_features * size(Role::kA);
      add(operands.a[slice], problem.max_rank * lane, lane, 0);
    }
    if (has_expand(problem.op)) {
      const std::int64_t row = problem.max_rank * size(Role::kB);
      add(operands.b[slice], width * row, size(Role::kB), row);
      add(problem.bias ? operands.bias[slice] : nullptr, width * size(Role::kBias), 0, 0);
    }
  }
}

void add_activations(TouchParams& params, const Problem& problem, const Operands& operands) {
  const std::int64_t x_size = size_bytes(problem.dtype[Role::kX]);
  const std::int64_t y_size = size_bytes(problem.dtype[Role::kY]);
  const bool shrinks = has_shrink(problem.op);
  const bool expands = has_expand(problem.op);
  const auto add = [&](const TouchParams::Rows& rows) { params.rows[params.operands++] = rows; };
  if (shrinks) {
    add({const_cast<void*>(operands.x), problem.in_features * x_size, problem.x_stride * x_size, 0,
         true, false});
  }
  std::int64_t columns = 0;
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    const std::int64_t width = problem.widths[static_cast<std::size_t>(slice)];
    columns += width;
    if (width > 0 && shrinks != expands) {  // else h is no operand
      const std::int64_t lane = size_bytes(problem.dtype[Role::kH]);
      const std::int64_t row = problem.max_rank * lane;
      add({static_cast<std::byte*>(operands.h) + slice * problem.tokens * row, row, row, lane,
           expands, shrinks});
    }
  }
  if (expands) {
    add({static_cast<std::byte*>(operands.y) + problem.offset_start * y_size, columns * y_size,
         problem.y_stride * y_size, 0, problem.add_inputs, true});
  }
}

class TouchProbe final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "touch"; }
  [[nodiscard]] std::string_view summary() const override {
    return "touches every operand once and computes nothing";
  }
  [[nodiscard]] Space space() const override { return Space::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts&) const override {
    return fast_kernels_take(problem);
  }
  [[nodiscard]] Numerics numerics(const Problem&) const override { return {}; }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return kSinkBytes; }

  void launch(const Problem& problem, const Operands& operands, Stream stream) const override {
    TouchParams params;
    add_weights(params, problem, operands);
    add_activations(params, problem, operands);
    params.adapter_of_token = operands.adapter_of_token;
    params.token_order = operands.token_order;
    params.active_ids = operands.active_ids;
    params.group_starts = operands.group_starts;
    params.rank = operands.rank;
    params.uniform_rank = uniform_rank(problem);
    params.tokens = problem.tokens;
    params.active = static_cast<std::int32_t>(problem.plan.active());
    params.backwards = backwards_ = !backwards_;
    params.sink = static_cast<unsigned*>(operands.workspace);
    LORA_BENCH_CUDA_CHECK(kernels::launch_touch(params, first_gpu().multiprocessors,
                                                static_cast<cudaStream_t>(stream.handle)));
  }

 private:
  mutable bool backwards_ = false;  // of the launch before
};

}  // namespace

std::unique_ptr<Backend> make_touch_probe() { return std::make_unique<TouchProbe>(); }

#else

std::unique_ptr<Backend> make_touch_probe() { throw EnvironmentError(why_no_gpu()); }

#endif
}  // namespace lora_bench
