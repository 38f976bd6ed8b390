#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "workload/problem.h"

namespace lora_bench {

// Addresses in the memory of the backend. A null pointer stands for an operand the op has not
// (x of expand, b of shrink, bias without bias, anything of zero elements).
struct Operands {
  const void* x = nullptr;
  const void *x_scale = nullptr, *h_scale = nullptr;  // of an x, or an h, of eight bits, fp32
  const float* factor = nullptr;                      // [M], of each row
  std::vector<const void*> a, b, bias;                // one per slice
  std::vector<const void*> a_scale, b_scale;          // of weights of eight bits, fp32
  void* h = nullptr;                                  // input of expand and embedding, else written
  void* y = nullptr;
  void* workspace = nullptr;
  void* prepared = nullptr;  // what Backend::prepare made of the weights
  // The plan and per-slot facts as the backend sees them (host or device memory).
  const std::int32_t* adapter_of_token = nullptr;  // [M]
  const std::int32_t* token_order = nullptr;       // [M]
  const std::int32_t* active_ids = nullptr;        // [active]
  const std::int32_t* group_starts = nullptr;      // [active + 1]
  const std::int32_t* rank = nullptr;              // [slots]
  const float* scale = nullptr;                    // [slots]
  const std::int32_t* token_of_row = nullptr;      // [M], which row of x a row reads; null: its own

  // Which row of x is that of a row for a slice.
  [[nodiscard]] std::int64_t x_row(const Problem& problem, std::int64_t slice,
                                   std::int64_t row) const {
    return token_of_row == nullptr ? problem.x_row(slice, row) : token_of_row[row];
  }
  // What the delta of a row is multiplied by.
  [[nodiscard]] float factor_of(std::int64_t row) const {
    return factor == nullptr ? 1.0F : factor[row];
  }
  // Tells where an operand lies.
  void point(const Operand& operand, void* address);
};

// What Backend::prepare is given: neither rows nor a plan, from which it could work out results.
// Of the step it is told that no row has an adapter.
[[nodiscard]] Operands weights_alone(const Operands& operands);
[[nodiscard]] Problem weights_alone(const Problem& problem);

// Shrink or expand of a linear op as an op of its own, told of its tuning what is about it.
[[nodiscard]] Problem half_of(Problem linear, Op half);

// None yet, with room for each slice's.
[[nodiscard]] Operands no_operands(const Problem& problem);

// The arrays of a plan, and where a launch finds each.
struct PlanArray {
  const char* name;
  const std::int32_t* Operands::*address;
  std::vector<std::int32_t> Plan::*values;
};
inline constexpr std::array<PlanArray, 4> kPlanArrays{{
    {"adapter_of_token", &Operands::adapter_of_token, &Plan::adapter_of_token},
    {"token_order", &Operands::token_order, &Plan::token_order},
    {"active_ids", &Operands::active_ids, &Plan::active_ids},
    {"group_starts", &Operands::group_starts, &Plan::group_starts},
}};

// The plan and the ranks as kernels take them.
struct IndexArray {
  const char* name;
  const std::int32_t* Operands::*address;
  std::vector<std::int32_t> values;
};
// In the form of the problem, under these names; rank has one more entry, 0, for idle segments. Of
// form sorted with room for at least so many groups: ids end in -1, starts repeat where the last
// group ends.
[[nodiscard]] std::vector<IndexArray> index_arrays_of(const Problem& problem,
                                                      std::int64_t least_groups = 0);

}  // namespace lora_bench
