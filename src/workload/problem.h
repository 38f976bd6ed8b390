#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "plan/plan.h"
#include "scenario/case.h"
#include "workload/batch.h"
#include "workload/route.h"

namespace lora_bench {

enum class Role : std::uint8_t {
  kX,
  kA,
  kB,
  kBias,
  kH,
  kY,
  kAScale,
  kBScale,
  kXScale,
  kHScale,
  kFactor,
};
template <>
struct EnumNames<Role> {
  static constexpr std::array<std::string_view, 11> kNames{
      "x", "a", "b", "bias", "h", "y", "a_scale", "b_scale", "x_scale", "h_scale", "factor"};
};

// Of fp32 whatever the dtypes of a step are: scales of operands, and factors of rows.
[[nodiscard]] constexpr bool is_scale(Role role) {
  return role == Role::kAScale || role == Role::kBScale || role == Role::kXScale ||
         role == Role::kHScale || role == Role::kFactor;
}

// The dtype of each operand of a step. h has its own, whatever the others have, and scales and
// factors are always fp32.
struct OperandDtypes {
  std::array<Dtype, EnumNames<Role>::kNames.size()> of_role{};

  OperandDtypes() : OperandDtypes(Dtype::kBf16) {}
  explicit OperandDtypes(Dtype all_but_h, Dtype h = Dtype::kFp32) {
    of_role.fill(all_but_h);
    (*this)[Role::kH] = h;
    for (const Role role :
         {Role::kAScale, Role::kBScale, Role::kXScale, Role::kHScale, Role::kFactor}) {
      (*this)[role] = Dtype::kFp32;
    }
  }
  [[nodiscard]] Dtype& operator[](Role role) { return of_role[static_cast<std::size_t>(role)]; }
  [[nodiscard]] Dtype operator[](Role role) const {
    return of_role[static_cast<std::size_t>(role)];
  }
  // Whether all but h and the scales have one dtype, as most kernels want it.
  [[nodiscard]] bool alike() const;
  [[nodiscard]] bool operator==(const OperandDtypes&) const = default;
};

// How operands lie in memory, where that is not each slice apart and all without gaps. Tensors are
// always without gaps and by slices: workload/stored.h puts them where this says.
struct Layout {
  Placing placing = Placing::kSeparate;
  std::int64_t x_column_stride = 1;
  // Elements behind each lane of A, output of B and row of h that belong to nobody.
  std::int64_t a_gap = 0, b_gap = 0, h_gap = 0;

  [[nodiscard]] bool operator==(const Layout&) const = default;
  [[nodiscard]] bool plain() const { return *this == Layout{}; }
};

// The scales of one slice of A or B: a row is a lane of A or an output of B, a column an element of
// it. Those of a slot lie behind each other, a row of blocks after the other.
struct ScaleBlocks {
  std::int64_t rows = 1, columns = 1;  // of a block
  std::int64_t down = 0, across = 0;   // blocks of a slot

  [[nodiscard]] std::int64_t of_slot() const { return down * across; }
  [[nodiscard]] std::int64_t at(std::int64_t slot, std::int64_t row, std::int64_t column) const {
    return slot * of_slot() + row / rows * across + column / columns;
  }
};

// Which numbers of a matrix of weights have a scale together; of scale block the rows and columns
// of a block.
struct ScaleForm {
  WeightsScale scale = WeightsScale::kNone;
  std::int64_t rows = 0, columns = 0;

  [[nodiscard]] bool any() const { return scale != WeightsScale::kNone; }
  // Of a matrix of so many rows and columns; of none an empty one has one block.
  [[nodiscard]] ScaleBlocks over(std::int64_t all_rows, std::int64_t all_columns) const;
  [[nodiscard]] bool operator==(const ScaleForm&) const = default;
};

// The scales of activations: a row is that of a token, or stands for all tokens; those of slices
// that have an x of their own, or of h, lie behind each other, a row after the other.
struct ScalesOfRows {
  std::int64_t rows = 0, across = 0;  // of one slice, or of the x that all have
  std::int64_t columns = 1;           // features of x, or lanes of h, that have one in common
  bool by_token = false;

  // `row` is that of Problem::row_of_activations: of `tokens` rows for each slice that has its own.
  [[nodiscard]] std::int64_t at(std::int64_t row, std::int64_t tokens, std::int64_t column) const {
    return (by_token ? row : row / tokens) * across + column / columns;
  }
  [[nodiscard]] bool operator==(const ScalesOfRows&) const = default;
};

// How numbers become numbers of eight bits times a scale that is made of them, see QuantiserSpec.
struct QuantiserRule {
  Dtype to = Dtype::kE4m3;
  Convert convert = Convert::kDivide;
  bool power_of_two = false;
  float least_amax = 0, least_scale = 0;

  [[nodiscard]] bool operator==(const QuantiserRule&) const = default;
};
[[nodiscard]] QuantiserRule quantiser_rule_of(const Case& spec, Dtype to);
// "divide, least amax 0, least scale 4.35965e-06".
[[nodiscard]] std::string rule_text(const QuantiserRule& rule);

// How op linear quantises h between its two sums: the lanes below the rank of a row of a slice,
// each run of `group` of them with a scale of its own; 0: all of them with one.
struct HiddenQuantiser {
  QuantiserRule rule;
  std::int64_t group = 0;

  [[nodiscard]] bool operator==(const HiddenQuantiser&) const = default;
};

// Everything about one step that is not an address: what a backend needs to say whether it can do
// it, how, and with how much workspace. Sizes are elements, never bytes.
struct Problem {
  Op op = Op::kLinear;
  OperandDtypes dtype;
  ScaleAt scale_at = ScaleAt::kShrink;
  bool add_inputs = true;
  IdleRows idle_rows = IdleRows::kKept;
  Inputs inputs = Inputs::kShared;
  bool shrink_adds = false;
  bool bias = false;
  std::vector<std::int64_t> bias_slices;  // that have one; none: all
  bool rank0_bias = false;                // adapters of rank 0 have one too
  Route route;
  std::int64_t tokens = 0;           // M, rows: with experts a token has several
  std::int64_t in_features = 0;      // K
  std::vector<std::int64_t> widths;  // N_i, may be 0
  std::int64_t offset_start = 0;
  std::int64_t x_stride = 0;
  std::int64_t a_stride = 0;  // of a base product alone: between rows of W; 0: in_features
  std::int64_t y_stride = 0;
  std::int64_t slots = 0;
  std::int64_t max_rank = 0;
  std::vector<std::int64_t> rank;  // [slots]
  // [slots] Lanes that hold numbers, where those up to the rank hold zeros; empty: all of them.
  std::vector<std::int64_t> own_rank;
  std::vector<float> scale;  // [slots]
  // Of weights of eight bits; of scale block the rows and columns of a block.
  WeightsScale weights_scale = WeightsScale::kNone;
  std::int64_t block_rows = 0, block_columns = 0;
  // Of activations of eight bits; of scale block the input features, or lanes, of a block.
  ActivationsScale activations_scale = ActivationsScale::kNone;
  std::int64_t activations_group = 0;
  // Where h is quantised between the sums. Its scratch has fp32 then, and the codes lie where the
  // backend wants them.
  std::optional<HiddenQuantiser> h_quantiser;
  Plan plan;
  std::int64_t max_active = 0;  // adapters in use that a launch is captured for; 0: this batch's
  // The index arrays that the plan is handed over in (docs/plan.md).
  PlanForm plan_form = PlanForm::kSorted;
  PlanGrid plan_grid = PlanGrid::kSlots;
  std::int64_t chunk = 0;  // of form chunked: most rows of a segment
  bool idle_segments = false;
  Layout layout;
  Tuning tuning;  // what backend `auto` is told

  [[nodiscard]] std::int64_t slices() const { return static_cast<std::int64_t>(widths.size()); }
  [[nodiscard]] bool has_bias(std::int64_t slice) const;
  [[nodiscard]] bool has_scaled_weights() const { return weights_scale != WeightsScale::kNone; }
  // The activations of a step are what it is given a row of for each token: x, or the h of an op
  // without a shrink.
  [[nodiscard]] Role activations() const { return has_shrink(op) ? Role::kX : Role::kH; }
  [[nodiscard]] Role their_scales() const { return has_shrink(op) ? Role::kXScale : Role::kHScale; }
  [[nodiscard]] bool has_scaled_activations() const {
    return activations_scale != ActivationsScale::kNone;
  }
  [[nodiscard]] bool has_scaled_x() const { return has_scaled_activations() && has_shrink(op); }
  [[nodiscard]] bool has_scaled_h() const { return has_scaled_activations() && !has_shrink(op); }
  [[nodiscard]] bool has_scales(Role role) const {
    return (has_scaled_weights() && (role == Role::kA || role == Role::kB)) ||
           (has_scaled_activations() && role == activations());
  }
  // In which format the second sum of an op with both takes h.
  [[nodiscard]] Dtype kept_h() const {
    return h_quantiser ? h_quantiser->rule.to : dtype[Role::kH];
  }
  // What h is cast to by a backend that multiplies it in the dtype of B; eight bits are widened.
  [[nodiscard]] Dtype dtype_of_cast() const {
    return dtype[has_scaled_weights() ? Role::kY : Role::kB];
  }
  [[nodiscard]] ScalesOfRows scales_of_rows() const;
  [[nodiscard]] ScaleForm scale_form() const { return {weights_scale, block_rows, block_columns}; }
  // Where the scale of a number of A or B lies, from the address of its slice's scales on.
  [[nodiscard]] ScaleBlocks scales_of_a() const;
  [[nodiscard]] ScaleBlocks scales_of_b(std::int64_t slice) const;
  // The same of either: kA or kB, or the role of the scales themselves.
  [[nodiscard]] ScaleBlocks scales_of(Role role, std::int64_t slice) const {
    return role == Role::kA || role == Role::kAScale ? scales_of_a() : scales_of_b(slice);
  }
  // Lanes of an adapter that hold numbers: its rank, or less where zeros lie behind them.
  [[nodiscard]] std::int64_t own_lanes(std::int64_t slot) const;
  // Whether an adapter does something to its rows though it has rank 0.
  [[nodiscard]] bool biases_rank0() const { return rank0_bias && bias && has_expand(op); }
  // Whether the adapter of a row, of that rank, does anything to it; kNoAdapter does not, nor the
  // slot of segments that do nothing.
  [[nodiscard]] bool acts(std::int32_t adapter, std::int64_t its_rank) const {
    return adapter >= 0 && adapter < slots && (its_rank > 0 || biases_rank0());
  }
  [[nodiscard]] bool acts(std::int32_t adapter) const {
    return adapter >= 0 && acts(adapter, rank[static_cast<std::size_t>(adapter)]);
  }
  [[nodiscard]] bool acts_on(std::int64_t token) const {
    return acts(plan.adapter_of_token[static_cast<std::size_t>(token)]);
  }
  // Of op with a shrink: whether each slice has an x of its own, and which row of x is that of a
  // token for a slice.
  [[nodiscard]] bool own_inputs() const {
    return inputs == Inputs::kPerSlice && has_shrink(op) && slices() > 1;
  }
  [[nodiscard]] bool shares_x() const { return !route.token_of_row.empty(); }
  [[nodiscard]] std::int64_t x_rows() const { return shares_x() ? route.x_rows : tokens; }
  [[nodiscard]] std::int64_t x_row(std::int64_t slice, std::int64_t token) const {
    return shares_x() ? route.token_of_row[static_cast<std::size_t>(token)]
                      : (own_inputs() ? slice * tokens : 0) + token;
  }
  // Whether the delta of each row has a factor of its own.
  [[nodiscard]] bool has_factors() const { return !route.factor_of_row.empty(); }
  // The same of activations: whether each slice has rows of its own, which of h it always has.
  [[nodiscard]] bool own_activations() const { return own_inputs() || !has_shrink(op); }
  [[nodiscard]] std::int64_t row_of_activations(std::int64_t slice, std::int64_t token) const {
    return own_activations() ? slice * tokens + token : token;
  }
  // Whether what shrink makes is added to an h that is given.
  [[nodiscard]] bool adds_to_h() const { return shrink_adds && op == Op::kShrink; }
  // Whether lanes of a slice of h at or above a rank, and all of a row without an adapter, are to
  // stay as they are: numbers of the caller. Lanes that are packed have no place above a rank.
  [[nodiscard]] bool keeps_other_lanes(std::int64_t slice) const {
    return adds_to_h() && !packed() && widths[static_cast<std::size_t>(slice)] > 0;
  }
  // Whether rows that no adapter acts on get zeros.
  [[nodiscard]] bool zeroes_idle_rows() const {
    return idle_rows == IdleRows::kZeroed && !add_inputs && has_expand(op);
  }
  // Groups that a launch has to be ready for, those of other batches included: entries of
  // active_ids, which of form chunked are segments.
  [[nodiscard]] std::int64_t groups() const;
  // Slots that a group may be of: one more where rows without an adapter have segments.
  [[nodiscard]] std::int64_t group_slots() const { return slots + (idle_segments ? 1 : 0); }

  // Where numbers lie, in elements from the address of the slice's operand: `rank` is that of the
  // slot, or of the adapter of the row.
  [[nodiscard]] bool separate() const { return layout.placing == Placing::kSeparate; }
  [[nodiscard]] bool packed() const { return layout.placing == Placing::kPacked; }
  [[nodiscard]] std::int64_t a_pitch() const { return in_features + layout.a_gap; }
  [[nodiscard]] std::int64_t b_pitch() const { return max_rank + layout.b_gap; }
  // Of a slot of A, and of a row of h: of one slice, or of all where they share a buffer.
  [[nodiscard]] std::int64_t lanes_together() const {
    return (separate() ? 1 : slices()) * max_rank;
  }
  [[nodiscard]] std::int64_t h_pitch() const { return lanes_together() + layout.h_gap; }
  // From a slot to the next.
  [[nodiscard]] std::int64_t outputs_of_slot(std::int64_t slice) const;
  [[nodiscard]] std::int64_t x_at(std::int64_t slice, std::int64_t token, std::int64_t k) const {
    return x_row(slice, token) * x_stride + k * layout.x_column_stride;
  }
  [[nodiscard]] std::int64_t a_at(std::int64_t slice, std::int64_t slot, std::int64_t its_rank,
                                  std::int64_t lane) const {
    return (slot * lanes_together() + (packed() ? slice * its_rank : 0) + lane) * a_pitch();
  }
  [[nodiscard]] std::int64_t b_at(std::int64_t slice, std::int64_t slot,
                                  std::int64_t output) const {
    return (slot * outputs_of_slot(slice) + output) * b_pitch();
  }
  [[nodiscard]] std::int64_t bias_at(std::int64_t slice, std::int64_t slot,
                                     std::int64_t output) const {
    return slot * outputs_of_slot(slice) + output;
  }
  [[nodiscard]] std::int64_t h_at(std::int64_t slice, std::int64_t token, std::int64_t its_rank,
                                  std::int64_t lane) const {
    return separate() ? (slice * tokens + token) * h_pitch() + lane
                      : token * h_pitch() + slice * (packed() ? its_rank : max_rank) + lane;
  }
  [[nodiscard]] bool operator==(const Problem&) const = default;
};

// How the scales of a case's weights lie.
[[nodiscard]] ScaleForm scale_form_of(const Case& spec);

[[nodiscard]] Problem make_problem(const Case& spec, const Batch& batch, const Adapters& adapters);
// Of the batch and the adapters that the case draws.
[[nodiscard]] Problem make_problem(const Case& spec);

// One row of the largest group with another adapter of the batch: the same adapters, groups of
// other sizes. The problem itself where one adapter alone is in use, or each has one row.
[[nodiscard]] Problem with_other_counts(const Problem& problem);

// One array of numbers of a step. An operand that the op has not has no elements.
struct Operand {
  Role role = Role::kX;
  std::int64_t slice = -1;  // -1: of all slices
  Dtype dtype = Dtype::kFp32;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
  bool per_slot = false;  // a block for each slot, which rotates as weights do; else for each row
  bool of_all_rows = false;  // not that either: whichever rows a step has, it stays as it is
  bool written = false;      // by the op
  bool given = true;         // holds numbers before a launch

  [[nodiscard]] std::int64_t bytes() const { return elements * size_bytes(dtype); }
};

// All operands: x and its scales, of each slice a, b, bias and theirs where there are any, then h
// and its scales, and y.
// Throws CaseError where one has more bytes than 64 bits can count.
//   x [x_rows, x_stride], or [slices, M, x_stride]   factor [M, 1]   x_scale [rows, across]
//   (ScalesOfRows), or [slices, rows, across]   a[i] [slots, max_rank, K]   b[i] [slots, N_i,
//   max_rank] bias[i] [slots, N_i]   a_scale[i], b_scale[i] [slots, down, across] (ScaleBlocks)
//   h [slices, M, max_rank]   h_scale [slices, rows, across]   y [M, y_stride]
[[nodiscard]] std::vector<Operand> operands_of(const Problem& problem);
[[nodiscard]] Operand operand_of(const Problem& problem, Role role, std::int64_t slice = -1);
// "x", "a[1]".
[[nodiscard]] std::string label(const Operand& operand);

// 16 hexadecimal digits of everything that was drawn but numbers (of tensors, and scales): rows of
// one name and one content measured the same step.
[[nodiscard]] std::string content_of(const Problem& problem);

}  // namespace lora_bench
