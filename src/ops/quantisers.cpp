#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "core/error.h"
#include "ops/backends.h"
#include "ops/scaled_weights.h"
#include "ops/thread_pool.h"

#ifdef LORA_BENCH_HAVE_CUDA
#include "device/cuda_check.h"
#include "kernels/quantise/quantise.h"
#include "ops/kernel_params.h"
#endif

namespace lora_bench {
namespace {

// The rows of one launch, which threads share.
class CpuRows {
 public:
  CpuRows(const QuantiseProblem& problem, const ArrayOperands& operands)
      : problem_(problem),
        x_(static_cast<const std::byte*>(operands.inputs[0])),
        codes_(static_cast<std::byte*>(operands.outputs[0])),
        given_(problem.scales_given ? static_cast<const float*>(operands.inputs[1]) : nullptr),
        made_(problem.scales_given ? nullptr : static_cast<float*>(operands.outputs[1])) {}

  // The largest |x| of each run of a row that has a scale.
  [[nodiscard]] std::vector<float> largest_of(std::int64_t row) const {
    const std::vector<float> x = numbers(row);
    std::vector<float> most(static_cast<std::size_t>(problem_.scales.across));
    for (std::size_t column = 0; column < x.size(); ++column) {
      float& of_run = most[column / static_cast<std::size_t>(problem_.scales.columns)];
      of_run = std::max(of_run, std::fabs(x[column]));
    }
    return most;
  }

  void convert(std::int64_t row, const float* scales) const {
    std::vector<float> x = numbers(row);
    const auto group = static_cast<std::size_t>(problem_.scales.columns);
    for (std::size_t first = 0; first < x.size(); first += group) {
      convert_by(problem_, scales[first / group],
                 std::span(x).subspan(first, std::min(group, x.size() - first)));
    }
    encode(problem_.to, x, codes_ + row * problem_.columns);
  }

  // Of a row with scales of its own.
  void quantise(std::int64_t row) const {
    const std::int64_t across = problem_.scales.across;
    if (made_ != nullptr) {
      const std::vector<float> most = largest_of(row);
      std::transform(most.begin(), most.end(), made_ + row * across,
                     [&](float amax) { return scale_for(problem_, amax); });
    }
    convert(row, (made_ != nullptr ? made_ : given_) + row * across);
  }

  void convert_by_one(std::int64_t row) const { convert(row, made_ != nullptr ? made_ : given_); }

  void make_one_scale(float amax) const { *made_ = scale_for(problem_, amax); }

 private:
  [[nodiscard]] std::vector<float> numbers(std::int64_t row) const {
    std::vector<float> x(static_cast<std::size_t>(problem_.columns));
    decode(problem_.from, x_ + row * problem_.stride * size_bytes(problem_.from), x);
    return x;
  }

  const QuantiseProblem& problem_;
  const std::byte* x_;
  std::byte* codes_;
  const float* given_;
  float* made_;
};

class CpuQuantiser final : public Quantiser {
 public:
  [[nodiscard]] Support supports(const QuantiseProblem&, const DeviceFacts&) const override {
    return {};
  }

  void launch(const QuantiseProblem& problem, const ArrayOperands& operands,
              Stream) const override {
    ThreadPool& pool = shared_thread_pool();
    const CpuRows rows(problem, operands);
    if (problem.scales.by_token) {
      pool.run(problem.rows, [&](std::int64_t row) { rows.quantise(row); });
      return;
    }
    if (!problem.scales_given && problem.rows > 0) {
      std::vector<float> most(static_cast<std::size_t>(problem.rows));
      pool.run(problem.rows, [&](std::int64_t row) {
        most[static_cast<std::size_t>(row)] = rows.largest_of(row).front();
      });
      rows.make_one_scale(*std::max_element(most.begin(), most.end()));
    }
    pool.run(problem.rows, [&](std::int64_t row) { rows.convert_by_one(row); });
  }
};

#ifdef LORA_BENCH_HAVE_CUDA

kernels::QuantiseParams quantise_params(const QuantiseProblem& problem,
                                        const ArrayOperands& operands) {
  const bool given = problem.scales_given;
  return {.x = operands.inputs[0],
          .codes = static_cast<std::uint8_t*>(operands.outputs[0]),
          .made = given ? nullptr : static_cast<float*>(operands.outputs[1]),
          .given = given ? static_cast<const float*>(operands.inputs[1]) : nullptr,
          .rows = problem.rows,
          .columns = problem.columns,
          .stride = problem.stride,
          .group = problem.scales.columns,
          .least_amax = problem.least_amax,
          .least_scale = problem.least_scale,
          .one_scale = !problem.scales.by_token,
          .multiplies = problem.convert == Convert::kMultiply,
          .power_of_two = problem.power_of_two};
}

#endif

// By kernels/quantise.
class DeviceQuantiser final : public Quantiser {
 public:
  explicit DeviceQuantiser(int compute_capability) : compute_capability_(compute_capability) {}

  [[nodiscard]] Support supports(const QuantiseProblem&, const DeviceFacts&) const override {
    return {};
  }

  void launch([[maybe_unused]] const QuantiseProblem& problem,
              [[maybe_unused]] const ArrayOperands& operands,
              [[maybe_unused]] Stream stream) const override {
#ifdef LORA_BENCH_HAVE_CUDA
    LORA_BENCH_CUDA_CHECK(kernels::launch_quantise(
        kernel_number(problem.from), problem.to == Dtype::kE5m2, quantise_params(problem, operands),
        compute_capability_, static_cast<cudaStream_t>(stream.handle)));
#else
    throw EnvironmentError(why_no_gpu());
#endif
  }

 private:
  int compute_capability_;
};

}  // namespace

std::unique_ptr<Quantiser> make_cpu_quantiser() { return std::make_unique<CpuQuantiser>(); }

std::unique_ptr<Quantiser> make_device_quantiser(int compute_capability) {
  return std::make_unique<DeviceQuantiser>(compute_capability);
}

}  // namespace lora_bench
