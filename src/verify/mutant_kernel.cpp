#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/dtype.h"
#include "verify/mutant_faults.h"
#include "verify/mutant_values.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kPartials = 16;
constexpr float kLargestFp16 = 65504;

struct Launch {
  const Problem& problem;
  const Operands& operands;
  Fault fault = Fault::kNone;
  std::int64_t number = 0;    // launches of this kernel before
  std::int64_t in_a_row = 0;  // of these the last ones, of this step
  float factor = 1;           // of every sum
  RowFacts row = {};          // of the row in hand, where the fault looks at it
  std::vector<float> x = {};  // of the row in hand, as it is read
  std::int32_t taken = 0;     // slot of the weights that the fault takes for those of the row

  [[nodiscard]] bool is(Fault other) const { return fault == other; }
};

std::int64_t rank_of(const Launch& launch, std::int32_t adapter) {
  const std::int64_t rank = launch.is(Fault::kRanksOfRecording)
                                ? launch.problem.rank[static_cast<std::size_t>(adapter)]
                                : launch.operands.rank[adapter];
  if (rank == 0 && launch.is(Fault::kRankZeroReadsLaneZero)) {
    return std::min<std::int64_t>(1, launch.problem.max_rank);
  }
  return rank;
}

float scaled(const Launch& launch, float value, std::int32_t adapter) {
  const float* scale = launch.operands.scale;
  if (launch.is(Fault::kScaleMissing)) {
    return value;
  }
  if (launch.is(Fault::kScaleTwice)) {
    return value * scale[adapter] * scale[adapter];
  }
  if (launch.is(Fault::kScaleOfNeighbour)) {
    return value * scale[(adapter + 1) % launch.problem.slots];
  }
  if (launch.is(Fault::kLooseScale)) {
    return value * scale[adapter] * 1.15F;
  }
  if (launch.is(Fault::kScaleTwoPercent)) {
    return value * scale[adapter] * 1.02F;
  }
  if (launch.is(Fault::kScaleLastBits)) {
    return value * (scale[adapter] * (1 + 0x1p-21F));
  }
  return value * scale[adapter];
}

std::int64_t summed_elements(const Launch& launch) {
  const std::int64_t all = launch.problem.in_features;
  if (launch.is(Fault::kLostKTail32) || launch.is(Fault::kLooseKTailLost)) {
    return all > 32 ? all - 32 : all;
  }
  if (launch.is(Fault::kLostKTail1)) {
    return std::max<std::int64_t>(all - 1, 0);
  }
  const bool ends = launch.is(Fault::kZeroEndsK) && launch.row.first_zero >= 0;
  return ends ? launch.row.first_zero : all;
}

// Where in A and B the numbers of one lane of one slice start.
struct Lane {
  std::int64_t slice = 0;
  std::int32_t adapter = 0;
  std::int64_t lane = 0;
};

// The numbers of x that sums over K take.
std::vector<float> x_of_row(const Launch& launch, std::int64_t slice, std::int64_t token) {
  const Problem& problem = launch.problem;
  const std::int64_t row = x_row_taken(problem, launch.operands, slice, token, launch.fault);
  const std::int64_t x_stride =
      launch.is(Fault::kXStrideIgnored) ? problem.in_features : problem.x_stride;
  const void* x =
      launch.is(Fault::kAlignedLoads) ? rounded_down(launch.operands.x) : launch.operands.x;
  const std::int64_t column_stride =
      launch.is(Fault::kXColumnsTakenDense) ? 1 : problem.layout.x_column_stride;
  std::vector<float> values = decoded(dtype_read(problem, launch.fault, Role::kX), x,
                                      row * x_stride, summed_elements(launch), column_stride);
  read_numbers_as(problem, Role::kX, values, launch.fault);
  scale_activations(problem, launch.operands, {Role::kX, row}, launch.fault, values);
  for (float& value : values) {
    value = x_as_read(problem.dtype[Role::kX], value, launch.row, launch.fault);
  }
  return values;
}

std::vector<float> lane_of_a(const Launch& launch, const Lane& at) {
  const Problem& problem = launch.problem;
  const std::int32_t slot = launch.is(Fault::kEqualBShareA) ? launch.taken : at.adapter;
  const std::int64_t rank =
      launch.is(Fault::kPackedAtLargestRank) ? problem.max_rank : rank_of(launch, at.adapter);
  std::vector<float> values =
      decoded(dtype_read(problem, launch.fault, Role::kA),
              launch.operands.a[static_cast<std::size_t>(at.slice)],
              problem.a_at(at.slice, slot, rank, at.lane), summed_elements(launch));
  read_numbers_as(problem, Role::kA, values, launch.fault);
  scale_rows(problem, launch.operands, {Role::kA, at.slice, slot, at.lane}, std::ssize(values),
             launch.fault, values);
  return values;
}

float partial_sum(const std::vector<float>& x, const std::vector<float>& a, std::int64_t begin,
                  std::int64_t end) {
  return std::inner_product(x.begin() + begin, x.begin() + end, a.begin() + begin, 0.0F);
}

float joined(const Launch& launch, float sum, float partial) {
  if (launch.is(Fault::kBf16Partials)) {
    return sum + rounded_to_bf16(partial);
  }
  if (launch.is(Fault::kBf16RunningSum)) {
    return rounded_to_bf16(sum + partial);
  }
  return sum + partial;
}

bool sums_backwards(const Launch& launch) {
  constexpr std::int64_t kRare = 16;
  return (launch.is(Fault::kOrderVariesByRun) && launch.number % 2 == 1) ||
         (launch.is(Fault::kOrderVariesRarely) && launch.in_a_row == kRare - 1) ||
         (launch.is(Fault::kOrderVariesByBatch) && launch.problem.plan.rows_with_adapter() == 1);
}

// Split-K as a GPU would do it: so many partial sums, each in order, then joined in order.
float sum_over_k(const Launch& launch, const Lane& at) {
  const std::vector<float> a = lane_of_a(launch, at);
  const std::int64_t width = (launch.problem.in_features + kPartials - 1) / kPartials;
  const std::int64_t end = summed_elements(launch);
  const bool backwards = sums_backwards(launch);
  float sum = 0;
  for (std::int64_t turn = 0; turn < kPartials; ++turn) {
    const std::int64_t begin = width * (backwards ? kPartials - 1 - turn : turn);
    if (begin < end) {
      const float partial = partial_sum(launch.x, a, begin, std::min(begin + width, end));
      sum = joined(launch, sum, partial);
    }
  }
  return sum;
}

void shrink_row(const Launch& launch, const RowTask& task, std::int64_t slice) {
  const Problem& problem = launch.problem;
  if (problem.widths[static_cast<std::size_t>(slice)] == 0) {
    return;
  }
  for (std::int64_t lane = 0; lane < rank_of(launch, task.adapter); ++lane) {
    float value = sum_over_k(launch, {slice, task.adapter, lane}) * launch.factor;
    value = sum_as_kept(value, launch.row, launch.fault);
    if (problem.scale_at == ScaleAt::kShrink) {
      value = scaled(launch, value, task.adapter);
    }
    if (launch.is(Fault::kHRoundedToBf16)) {
      value = rounded_to_bf16(value);
    }
    if (launch.is(Fault::kHTruncatedToBf16)) {
      value = truncated_to_bf16(value);
    }
    const std::int64_t index = problem.h_at(slice, task.token, rank_of(launch, task.adapter), lane);
    const float before = load(problem.dtype[Role::kH], launch.operands.h, index);
    store(problem.dtype[Role::kH], launch.operands.h, index,
          h_to_store(problem, launch.fault, before, value));
  }
  if (launch.is(Fault::kGapOfHWritten) && problem.layout.h_gap > 0) {
    store(problem.dtype[Role::kH], launch.operands.h,
          problem.h_at(0, task.token, 0, problem.h_pitch() - 1), 0);
  }
}

bool scales_in_expand(const Launch& launch) {
  return launch.problem.scale_at == ScaleAt::kExpand ||
         (launch.is(Fault::kScaledByBothHalves) && !has_shrink(launch.problem.op));
}

// The lanes of h that sums over the rank take; those that the fault leaves out are zero.
std::vector<float> h_of_row(const Launch& launch, const RowTask& task, std::int64_t slice) {
  const Problem& problem = launch.problem;
  const std::int64_t h_slice =
      launch.is(Fault::kHOfFirstSlice) ? 0 : weights_of(problem, launch.fault, slice);
  // h was computed for the token; where it is given, the fault of the row is in its reading.
  const std::int64_t h_row = has_shrink(problem.op) ? task.token : task.source;
  const std::int64_t first = problem.h_at(h_slice, h_row, rank_of(launch, task.adapter), 0);
  const std::int64_t lanes = lanes_to_expand(problem, launch.fault, rank_of(launch, task.adapter));
  std::vector<float> values =
      decoded(dtype_read(problem, launch.fault, Role::kH), launch.operands.h, first, lanes);
  read_numbers_as(problem, Role::kH, values, launch.fault);
  scale_activations(problem, launch.operands, {Role::kH, h_slice * problem.tokens + h_row},
                    launch.fault, values);
  quantise_h(problem, launch.operands, {h_slice, h_row, rank_of(launch, task.adapter)},
             launch.fault, values);
  const float least = least_lane_kept(values, launch.fault);
  if (launch.is(Fault::kZeroEndsRank)) {
    values.erase(std::find(values.begin(), values.end(), 0.0F), values.end());
  }
  for (float& value : values) {
    value = std::fabs(value) < least ? 0 : value;
  }
  return values;
}

// The columns of one slice of B of the row's adapter, each so many lanes.
std::vector<float> columns_of_b(const Launch& launch, const RowTask& task, std::int64_t slice) {
  const Problem& problem = launch.problem;
  const std::int64_t pitch = pitch_of_b(launch.problem, launch.fault);
  const std::int64_t elements = problem.widths[static_cast<std::size_t>(slice)] * pitch;
  if (elements == 0) {
    return {};  // of no columns, and without an address
  }
  const std::int32_t slot = launch.is(Fault::kEqualAShareB) ? launch.taken : task.adapter;
  const auto weights = static_cast<std::size_t>(weights_of(problem, launch.fault, slice));
  const bool stacked = !problem.separate() && !launch.is(Fault::kStackedTakenApart);
  const std::int64_t first = stacked ? problem.b_at(slice, slot, 0) : slot * elements;
  std::vector<float> values = decoded(dtype_read(problem, launch.fault, Role::kB),
                                      launch.operands.b[weights], first, elements);
  read_numbers_as(problem, Role::kB, values, launch.fault);
  scale_rows(problem, launch.operands, {Role::kB, static_cast<std::int64_t>(weights), slot, 0},
             pitch, launch.fault, values);
  return values;
}

float delta_of(const Launch& launch, const RowTask& task, const std::vector<float>& h,
               const float* column_of_b) {
  const Problem& problem = launch.problem;
  float sum = 0;
  for (std::size_t lane = 0; lane < h.size(); ++lane) {
    sum += h[lane] * column_of_b[lane];
  }
  sum *= has_shrink(problem.op) ? 1 : launch.factor;
  sum *= factor_taken(problem, launch.operands, task.token, launch.fault);
  return scales_in_expand(launch) ? scaled(launch, sum, task.adapter) : sum;
}

float biased(const Launch& launch, float delta, const RowTask& task, std::int64_t slice,
             std::int64_t column) {
  const std::int64_t taken = slice_of_bias(launch.problem, launch.fault, slice);
  if (taken < 0 || launch.is(Fault::kBiasForgotten)) {
    return delta;
  }
  const auto index = static_cast<std::size_t>(taken);
  const std::int64_t width = launch.problem.widths[index];
  const float bias = load(launch.problem.dtype[Role::kBias], launch.operands.bias[index],
                          launch.problem.bias_at(taken, task.adapter, column % width));
  const bool with_scale = launch.is(Fault::kBiasScaled);
  const float times = with_scale ? launch.operands.scale[task.adapter] : 1;
  return delta + (launch.is(Fault::kBiasTwice) ? 2 * bias : times * bias);
}

float added_to_y(const Launch& launch, float delta, float before) {
  const Problem& problem = launch.problem;
  if (launch.is(Fault::kDeltaRounded)) {
    delta = rounded_to(problem.dtype[Role::kY], delta);
  }
  if (launch.is(Fault::kDeltaTwice)) {
    delta += delta;
  }
  if (!problem.add_inputs && launch.is(Fault::kOverwrittenTimesZero)) {
    return 0 * before + delta;
  }
  const bool adds_unasked = launch.is(Fault::kAddsOldYUnlessNan) && !std::isnan(before);
  if ((!problem.add_inputs && !adds_unasked) || launch.is(Fault::kYOverwritten)) {
    return delta;
  }
  if (launch.is(Fault::kShareOfY)) {
    return added_as_share(before, delta);
  }
  if (launch.is(Fault::kZeroYSkipped) && before == 0) {
    return before;
  }
  return launch.is(Fault::kYTwice) ? before + before + delta : before + delta;
}

void expand_row(const Launch& launch, const RowTask& task, std::int64_t slice) {
  const Problem& problem = launch.problem;
  const std::vector<float> h = h_of_row(launch, task, slice);
  const std::vector<float> b = columns_of_b(launch, task, slice);
  for (std::int64_t column = 0; column < problem.widths[static_cast<std::size_t>(slice)];
       ++column) {
    const std::int64_t index = task.token * y_pitch(launch.problem, launch.fault) +
                               y_column(launch.problem, launch.fault, slice, column);
    // What a mutant may destroy stays near its operand: the guard bands must survive to tell.
    if (skips_column(launch.problem, launch.fault, slice, column) ||
        index > problem.tokens * problem.y_stride) {
      continue;
    }
    const float sum =
        delta_of(launch, task, h, b.data() + column * pitch_of_b(launch.problem, launch.fault));
    if (launch.is(Fault::kZeroSumUnwritten) && sum == 0 && !h.empty()) {
      continue;
    }
    const float off =
        loose_factor(launch.fault, {launch.operands, task.token, slice, column}, problem.slices());
    const float before = load(problem.dtype[Role::kY], launch.operands.y, index);
    const bool apart = launch.is(Fault::kBiasRoundedApart) && problem.add_inputs;
    const float delta = apart ? off * sum : biased(launch, off * sum, task, slice, column);
    const float with_bias =
        apart ? rounded_to(problem.dtype[Role::kY], biased(launch, before, task, slice, column))
              : before;
    const float y = added_to_y(launch, delta, with_bias);
    const bool fp16 = problem.dtype[Role::kY] == Dtype::kFp16;
    const bool saturates = launch.is(fp16 ? Fault::kFp16Saturates : Fault::kYSaturatesAt65504);
    const float kept = launch.is(Fault::kYTruncated) ? cut_to(problem.dtype[Role::kY], y) : y;
    store(problem.dtype[Role::kY], launch.operands.y, index,
          saturates ? std::clamp(kept, -kLargestFp16, kLargestFp16) : kept);
  }
}

void add_bias_to_base_rows(const Launch& launch) {
  const Problem& problem = launch.problem;
  if (!problem.bias || problem.plan.active() == 0) {
    return;
  }
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
      for (std::int64_t column = 0; column < problem.widths[static_cast<std::size_t>(slice)] &&
                                    launch.operands.adapter_of_token[token] < 0;
           ++column) {
        const std::int64_t index =
            token * problem.y_stride + y_column(launch.problem, launch.fault, slice, column);
        const float before = load(problem.dtype[Role::kY], launch.operands.y, index);
        const RowTask task{token, token, launch.operands.active_ids[0]};
        store(problem.dtype[Role::kY], launch.operands.y, index,
              biased(launch, before, task, slice, column));
      }
    }
  }
}

class MutantKernel final : public Backend {
 public:
  MutantKernel(Fault fault, std::string name) : fault_(fault), name_(std::move(name)) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] std::string_view summary() const override {
    return "host kernel with a fault on purpose, to test the verifier";
  }
  [[nodiscard]] Space space() const override { return Space::kHost; }
  [[nodiscard]] Support supports(const Problem& problem, const DeviceFacts&) const override {
    keep_when_asked(fault_);
    return fault_fits(problem, fault_);
  }
  [[nodiscard]] std::int64_t workspace_bytes(const Problem&) const override { return 0; }

  // True for the correct kernel; whatever a fault makes untrue is for the verifier to find.
  [[nodiscard]] Numerics numerics(const Problem& problem) const override {
    Numerics numerics;
    numerics.shrink_depth = (problem.in_features + kPartials - 1) / kPartials + kPartials;
    numerics.expand_depth = problem.max_rank + 2;
    numerics.partials = kPartials;
    numerics.partial = declares_loosely(fault_) ? Dtype::kBf16 : Dtype::kFp32;
    numerics.intermediate = problem.kept_h();
    numerics.casts_h = fault_ == Fault::kCastDeclaredAlone;
    numerics.bias_added =
        fault_ == Fault::kBiasDeclaredApart ? BiasAdded::kAfter : BiasAdded::kWithDelta;
    numerics.replays_other_batches = true;
    numerics.summation = "16 fp32 partial sums over K, joined in order; fp32 over the rank";
    return numerics;
  }

  void launch(const Problem& problem, const Operands& operands, Stream) const override {
    if (!remembers(fault_)) {
      launch_with(problem, operands, has_shrink(problem.op));
      return;
    }
    memory_.note(problem, operands);
    if (!memory_.leaves_out_all(fault_)) {
      launch_with(problem, memory_.taken(problem, operands, fault_),
                  has_shrink(problem.op) && !memory_.leaves_out_shrink(fault_));
    }
  }

 private:
  void launch_with(const Problem& problem, const Operands& operands, bool shrinks) const {
    Launch launch{problem, operands, fault_, launches_++, memory_.same_in_a_row()};
    launch.factor = factor_by_size(problem, fault_);
    std::vector<RowTask> todo = tasks(launch);
    share_equal_rows(problem, operands, fault_, todo);
    zero_rows_left_over(problem, operands, fault_);
    for (const RowTask& task : todo) {
      launch.row = row_facts(problem, operands, task.source, fault_);
      launch.taken = slot_taken(problem, operands, task.adapter, fault_);
      if (skips_row(launch.row, fault_)) {
        continue;
      }
      for (std::int64_t slice = 0; shrinks && slice < problem.slices(); ++slice) {
        if (slice == 0 || problem.own_inputs()) {
          launch.x = x_of_row(launch, slice, task.source);
        }
        shrink_row(launch, task, slice);
      }
      for (std::int64_t slice = 0; has_expand(problem.op) && slice < problem.slices(); ++slice) {
        expand_row(launch, task, slice);
      }
    }
    if (launch.is(Fault::kBiasOnBaseRows) && has_expand(problem.op)) {
      add_bias_to_base_rows(launch);
    }
    if (launch.is(Fault::kEqualRowsShareResult)) {
      copy_results_of_equal_rows(problem, operands, todo);
    }
    if (launch.is(Fault::kBaseRowsAddZero) && has_expand(problem.op)) {
      add_zero_to_base_rows(problem, operands);
    }
    write_stray(problem, operands, fault_);
  }

  [[nodiscard]] std::vector<RowTask> tasks(const Launch& launch) const {
    if (!launch.is(Fault::kFrozenPlan)) {
      return assign_rows(launch.problem, launch.operands, fault_);
    }
    if (frozen_tokens_ != launch.problem.tokens || frozen_slots_ != launch.problem.slots) {
      frozen_ = assign_rows(launch.problem, launch.operands, fault_);
      frozen_tokens_ = launch.problem.tokens;
      frozen_slots_ = launch.problem.slots;
    }
    return frozen_;
  }

  Fault fault_;
  std::string name_;
  mutable std::int64_t launches_ = 0;
  mutable MutantMemory memory_;
  mutable std::vector<RowTask> frozen_;
  mutable std::int64_t frozen_tokens_ = -1, frozen_slots_ = -1;
};

}  // namespace

std::unique_ptr<Backend> make_mutant_kernel(Fault fault, const std::string& name) {
  return std::make_unique<MutantKernel>(fault, name);
}

}  // namespace lora_bench
