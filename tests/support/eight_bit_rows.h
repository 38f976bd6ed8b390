#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "device/memory.h"
#include "support/plain_backend.h"
#include "support/workload_case.h"
#include "verify/mutants.h"
#include "verify/verify.h"
#include "workload/tensors.h"

// What tests of an x and of a given h of eight bits share.

inline constexpr lora_bench::ActivationsScale kScaleForms[] = {
    lora_bench::ActivationsScale::kTensor, lora_bench::ActivationsScale::kToken,
    lora_bench::ActivationsScale::kBlock};

// With activations of eight bits whose groups have so many columns, where there are groups.
inline lora_bench::Case eight_bit_rows(lora_bench::ActivationsScale scale, lora_bench::Dtype dtype,
                                       std::int64_t group) {
  using namespace lora_bench;
  Case spec = workload_case(6, 3);
  spec.adapters.rank.list = {8, 5, 3};
  spec.adapters.max_rank = 9;
  spec.skew.kind = spec.prefill_skew.kind = Skew::kDistinct;
  spec.weights.dtype = Dtype::kE4m3;
  spec.weights.scale = WeightsScale::kChannel;
  spec.activations.dtype = dtype;
  spec.activations.scale = scale;
  spec.activations.group = scale == ActivationsScale::kBlock ? group : 0;
  return spec;
}

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

inline std::vector<float> numbers_of(const lora_bench::HostTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements));
  lora_bench::decode(tensor.dtype, tensor.data.data(), values);
  return values;
}

// A right backend that is handed other scales of x, or of h, than there are.
class MisreadsScalesOfRows final : public PlainBackend {
 public:
  using Change = std::function<void(std::vector<float>&)>;
  explicit MisreadsScalesOfRows(Change change) : change_(std::move(change)) {}

  void launch(const lora_bench::Problem& problem, const lora_bench::Operands& operands,
              lora_bench::Stream stream) const override {
    lora_bench::Operands misread = operands;
    const void*& stored = problem.has_scaled_x() ? misread.x_scale : misread.h_scale;
    const auto* before = static_cast<const float*>(stored);
    std::vector<float> scales(before,
                              before + operand_of(problem, problem.their_scales()).elements);
    change_(scales);
    stored = scales.data();
    right_->launch(problem, misread, stream);
  }

 private:
  Change change_;
  std::unique_ptr<lora_bench::Backend> right_ = lora_bench::make_mutant("none");
};

inline lora_bench::Verdict verdict_of(const lora_bench::Backend& backend,
                                      const lora_bench::Problem& problem, bool relations = false) {
  const std::unique_ptr<lora_bench::Memory> memory = lora_bench::make_host_memory();
  return verify(problem, backend, *memory, {.relations = relations});
}
