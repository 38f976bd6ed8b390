#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "verify/mutant_faults.h"

namespace lora_bench {

// What some faults look at before a row is summed.
struct RowFacts {
  bool known = false;            // of x, by a fault that looks
  float largest = 0, rest = 0;   // magnitude; the mean of the others that are not 0
  std::int64_t first_zero = -1;  // -1 = the row has none
  bool has_negative_zero = false;
};
[[nodiscard]] RowFacts row_facts(const Problem& problem, const Operands& operands, std::int64_t row,
                                 Fault fault);

// What some faults keep of the launches before, and do with it.
class MutantMemory {
 public:
  // The launch that is now made.
  void note(const Problem& problem, const Operands& operands);
  // How many launches of the same step in the same place went before it without another one.
  [[nodiscard]] std::int64_t same_in_a_row() const { return same_in_a_row_; }
  [[nodiscard]] bool leaves_out_all(Fault fault) const;
  [[nodiscard]] bool leaves_out_shrink(Fault fault) const;
  // What it takes for its operands.
  [[nodiscard]] Operands taken(const Problem& problem, const Operands& operands, Fault fault);

 private:
  struct Mark {
    std::size_t rows = 0, weights = 0;  // hashes of x (or h), and of A and B
    std::vector<std::int32_t> plan;
    std::vector<float> scales;
    const void* first_a = nullptr;
    const void* h = nullptr;
    const void* y = nullptr;
  };
  Mark now_, last_, before_last_;
  std::int64_t same_in_a_row_ = 0;
  void keep_a(const Problem& problem, const Operands& operands);

  std::vector<std::vector<std::byte>> a_;
  std::map<std::pair<Role, std::int64_t>, std::vector<std::byte>> weight_scales_;
  std::vector<float> scales_;
};

// Faults by size: what every sum is multiplied with, 1 where the sizes are not those of the fault.
[[nodiscard]] float factor_by_size(const Problem& problem, Fault fault);

// Faults by value: whether the row is left out, and what becomes of a number.
[[nodiscard]] bool skips_row(const RowFacts& row, Fault fault);
[[nodiscard]] float x_as_read(Dtype dtype, float x, const RowFacts& row, Fault fault);
// In which dtype A, B, x or h is read.
[[nodiscard]] Dtype dtype_read(const Problem& problem, Fault fault, Role role);
// What becomes of numbers of x, A, B or h before any scale.
void read_numbers_as(const Problem& problem, Role role, std::span<float> values, Fault fault);
// A lane of A or an output of B of one slot.
struct WeightsPlace {
  Role weights = Role::kA;
  std::int64_t slice = 0, slot = 0, row = 0;
};
// Multiplies rows of weights of eight bits from `first` on, each so many numbers behind the one
// before, with their scales.
void scale_rows(const Problem& problem, const Operands& operands, WeightsPlace first,
                std::int64_t pitch, Fault fault, std::span<float> values);
// A row of x or h, counted as Problem::row_of_activations does.
struct RowPlace {
  Role role = Role::kX;
  std::int64_t row = 0;
};
// The same of its first numbers, where the step is given scales of it.
void scale_activations(const Problem& problem, const Operands& operands, RowPlace at, Fault fault,
                       std::span<float> values);
// The lanes of h of one slice of a token, up to the rank, as the second sum takes them where the
// step quantises h. h is that of the launch.
struct LanesOfH {
  std::int64_t slice = 0, token = 0, rank = 0;
};
void quantise_h(const Problem& problem, const Operands& operands, LanesOfH at, Fault fault,
                std::span<float> values);
// What the delta of a row is multiplied by.
[[nodiscard]] float factor_taken(const Problem& problem, const Operands& operands, std::int64_t row,
                                 Fault fault);
// Which row of x a row reads.
[[nodiscard]] std::int64_t x_row_taken(const Problem& problem, const Operands& operands,
                                       std::int64_t slice, std::int64_t row, Fault fault);
// Of a layer of experts: whether a row is left out, and which slot is taken for that of a row.
[[nodiscard]] bool loses_choice(const Problem& problem, std::int64_t row, Fault fault);
[[nodiscard]] std::int32_t slot_of_expert(const Problem& problem, std::int32_t slot, Fault fault);
[[nodiscard]] float sum_as_kept(float sum, const RowFacts& row, Fault fault);
// What becomes of a sum where h holds `before`.
[[nodiscard]] float h_to_store(const Problem& problem, Fault fault, float before, float sum);
// Lanes of h below this are left out.
[[nodiscard]] float least_lane_kept(std::span<const float> h, Fault fault);
[[nodiscard]] float added_as_share(float before, float delta);

// Whether a fault shows what it is to show in a step of this kind.
[[nodiscard]] Support fault_fits(const Problem& problem, Fault fault);
// The rows that take their result from an earlier one that has the same x.
void share_equal_rows(const Problem& problem, const Operands& operands, Fault fault,
                      std::vector<RowTask>& tasks);
void copy_results_of_equal_rows(const Problem& problem, const Operands& operands,
                                const std::vector<RowTask>& tasks);
// The slot whose B (or A) a fault takes for that of `adapter`: the first with its A (or B), as far
// as the first lane (or column) tells.
[[nodiscard]] std::int32_t slot_taken(const Problem& problem, const Operands& operands,
                                      std::int32_t adapter, Fault fault);
// y + 0 where there is no adapter: -0 becomes +0.
void add_zero_to_base_rows(const Problem& problem, const Operands& operands);

[[nodiscard]] std::vector<FaultEntry> size_faults();
[[nodiscard]] std::vector<FaultEntry> value_faults();
[[nodiscard]] std::vector<FaultEntry> weight_faults();
[[nodiscard]] std::vector<FaultEntry> activation_faults();
[[nodiscard]] std::vector<FaultEntry> expert_faults();

// The writes of a faulty kernel to memory that is not its own.
// What `supports` keeps for good.
void keep_when_asked(Fault fault);

void write_stray(const Problem& problem, const Operands& operands, Fault fault);

// The roundings of mutants. They are not inlined: see mutant_numbers.cpp.
[[nodiscard, gnu::noinline]] float rounded_to_bf16(float value);
[[nodiscard, gnu::noinline]] float truncated_to_bf16(float value);
[[nodiscard, gnu::noinline]] float cut_to_tf32(float value);
// Towards zero; fp32 holds what it is given.
[[nodiscard]] float cut_to(Dtype dtype, float value);
[[nodiscard]] float rounded_to(Dtype dtype, float value);
// To 16 bytes, as one who trusts alignment reads.
[[nodiscard]] const void* rounded_down(const void* address);

}  // namespace lora_bench
