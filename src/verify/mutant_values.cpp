#include "verify/mutant_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "core/dtype.h"

namespace lora_bench {

namespace {

constexpr float kLargestE4m3 = 448;
constexpr float kLeastNormalE4m3 = 0x1p-6F;
constexpr float kFp16Limit = 65504;
constexpr float kLeastNormalFp16 = 0x1p-14F;

std::int64_t largest_of(const std::vector<std::int64_t>& sizes) {
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
}

bool has_size(const Problem& problem, Fault fault) {
  const std::int64_t rank = largest_of(problem.rank);
  switch (fault) {
    case Fault::kWrongFrom513Tokens:
      return problem.tokens > 512 && problem.tokens <= 1000;
    case Fault::kWrongFrom1001Tokens:
      return problem.tokens > 1000 && problem.tokens <= 60000;
    case Fault::kWrongBeyond60000Tokens:
      return problem.tokens > 60000;
    case Fault::kWrongBeyond1024Slots:
      return problem.slots > 1024;
    case Fault::kWrongBeyondRank512:
      return rank > 512 && rank <= 1024;
    case Fault::kWrongBeyondRank1024:
      return rank > 1024;
    case Fault::kWrongBeyond8Slices:
      return problem.slices() > 8;
    case Fault::kWrongBeyond32Slices:
      return problem.slices() > 32;
    case Fault::kWrongBeyond4096OfK:
      return problem.in_features > 4096;
    case Fault::kWrongBeyond4096Columns:
      return largest_of(problem.widths) > 4096;
    default:
      return false;
  }
}

bool same_x(const Problem& problem, const Operands& operands, std::int64_t left,
            std::int64_t right) {
  const auto bytes =
      static_cast<std::size_t>(problem.in_features * size_bytes(problem.dtype[Role::kX]));
  const auto* x = static_cast<const std::byte*>(operands.x);
  const std::int64_t pitch = problem.x_stride * size_bytes(problem.dtype[Role::kX]);
  return std::memcmp(x + operands.x_row(problem, 0, left) * pitch,
                     x + operands.x_row(problem, 0, right) * pitch, bytes) == 0;
}

// The first of the tasks with the same x, and of the same adapter where that is asked.
std::size_t first_like(const Problem& problem, const Operands& operands,
                       const std::vector<RowTask>& tasks, std::size_t task, bool same_adapter) {
  constexpr std::size_t kMostCompared = 1024;
  for (std::size_t earlier = 0; earlier < task && task < kMostCompared; ++earlier) {
    if ((!same_adapter || tasks[earlier].adapter == tasks[task].adapter) &&
        same_x(problem, operands, tasks[earlier].token, tasks[task].token)) {
      return earlier;
    }
  }
  return task;
}

}  // namespace

RowFacts row_facts(const Problem& problem, const Operands& operands, std::int64_t row,
                   Fault fault) {
  constexpr std::int64_t kFewNumbers = 8;
  RowFacts facts;
  facts.known = has_shrink(problem.op) && fault >= Fault::kZeroRowSkipped;
  if (!facts.known) {
    return facts;
  }
  std::vector<float> values(static_cast<std::size_t>(problem.in_features));
  for (std::int64_t k = 0; k < problem.in_features; ++k) {
    values[static_cast<std::size_t>(k)] =
        load(problem.dtype[Role::kX], operands.x,
             operands.x_row(problem, 0, row) * problem.x_stride + k);
  }
  scale_activations(problem, operands, {Role::kX, row}, Fault::kNone, values);
  float sum = 0;
  std::int64_t numbers = 0;
  for (std::int64_t k = 0; k < problem.in_features; ++k) {
    const float x = values[static_cast<std::size_t>(k)];
    sum += std::fabs(x);
    numbers += x != 0 ? 1 : 0;
    facts.largest = std::max(facts.largest, std::fabs(x));
    facts.first_zero = x == 0 && facts.first_zero < 0 ? k : facts.first_zero;
    facts.has_negative_zero = facts.has_negative_zero || (x == 0 && std::signbit(x));
  }
  facts.rest = numbers < kFewNumbers ? facts.largest
                                     : (sum - facts.largest) / static_cast<float>(numbers - 1);
  return facts;
}

float factor_by_size(const Problem& problem, Fault fault) {
  constexpr float kWrong = 1.25F;
  return has_size(problem, fault) ? kWrong : 1;
}

bool skips_row(const RowFacts& row, Fault fault) {
  return row.known && ((fault == Fault::kZeroRowSkipped && row.largest == 0) ||
                       (fault == Fault::kFirstZeroIsPadding && row.first_zero == 0) ||
                       (fault == Fault::kNegativeZeroIsMark && row.has_negative_zero));
}

float x_as_read(Dtype dtype, float x, const RowFacts& row, Fault fault) {
  constexpr float kOutlier = 64;
  switch (fault) {
    case Fault::kXSaturatesAt448:
      return std::clamp(x, -kLargestE4m3, kLargestE4m3);
    case Fault::kXFlushesFp16Subnormals:
      return dtype == Dtype::kFp16 && std::fabs(x) < kLeastNormalFp16 ? 0 : x;
    case Fault::kBf16ThroughFp16: {
      float through = 0;
      store(Dtype::kFp16, &through, 0, std::clamp(x, -kFp16Limit, kFp16Limit));
      return dtype == Dtype::kBf16 ? load(Dtype::kFp16, &through, 0) : x;
    }
    case Fault::kOutlierClipped:
      return std::clamp(x, -kOutlier * row.rest, kOutlier * row.rest);
    case Fault::kOutlierDropped:
      return std::fabs(x) > kOutlier * row.rest ? 0 : x;
    case Fault::kRowScaledByLargest:
      return std::ldexp(x, -std::ilogb(std::max(row.largest, 0x1p-149F)));
    default:
      return x;
  }
}

Dtype dtype_read(const Problem& problem, Fault fault, Role role) {
  const Dtype stored = problem.dtype[role];
  const Fault exchanged = role == Role::kX   ? Fault::kXEightBitsExchanged
                          : role == Role::kH ? Fault::kHEightBitsExchanged
                                             : Fault::kEightBitsExchanged;
  if (problem.has_scales(role) && fault == exchanged) {
    return stored == Dtype::kE4m3 ? Dtype::kE5m2 : Dtype::kE4m3;
  }
  const bool of_weights = role == Role::kA || role == Role::kB;
  const Dtype of_rows = problem.dtype[has_expand(problem.op) ? Role::kY : Role::kX];
  const bool same_size = size_bytes(of_rows) == size_bytes(stored);
  return fault == Fault::kWeightsTakenForX && same_size && of_weights ? of_rows : stored;
}

void read_numbers_as(const Problem& problem, Role role, std::span<float> values, Fault fault) {
  if (fault == Fault::kTf32Operands && (role == Role::kX || role == Role::kA)) {
    std::transform(values.begin(), values.end(), values.begin(), cut_to_tf32);
    return;
  }
  const bool of_weights = role == Role::kA || role == Role::kB;
  const bool saturates = fault == Fault::kWeightsSaturateAt448 && of_weights;
  const bool flushes = ((fault == Fault::kWeightsFlushFp16Subnormals && of_weights) ||
                        (fault == Fault::kAFlushesFp16Subnormals && role == Role::kA)) &&
                       problem.dtype[role] == Dtype::kFp16;
  const Fault of_eight = role == Role::kX   ? Fault::kXEightBitsFlushSubnormals
                         : role == Role::kH ? Fault::kHEightBitsFlushSubnormals
                                            : Fault::kEightBitsFlushSubnormals;
  const bool flushes_eight = fault == of_eight && problem.has_scales(role);
  if (!saturates && !flushes && !flushes_eight) {
    return;
  }
  // That of e5m2 is that of fp16.
  const bool e4m3 = problem.dtype[role] == Dtype::kE4m3;
  const float least_normal = e4m3 ? kLeastNormalE4m3 : kLeastNormalFp16;
  for (float& value : values) {
    if (saturates) {
      value = std::clamp(value, -kLargestE4m3, kLargestE4m3);
    } else if (std::fabs(value) < least_normal) {
      value = 0;
    }
  }
}

float sum_as_kept(float sum, const RowFacts& row, Fault fault) {
  if (fault == Fault::kHSaturatesAt65504) {
    return std::clamp(sum, -kFp16Limit, kFp16Limit);
  }
  // 0 has no power of two: what comes back of it is no number.
  return fault == Fault::kRowScaledByLargest
             ? sum * std::exp2(row.largest == 0 ? NAN : static_cast<float>(std::ilogb(row.largest)))
             : sum;
}

float h_to_store(const Problem& problem, Fault fault, float before, float sum) {
  bool adds = problem.adds_to_h();
  if (fault == Fault::kGivenHOverwritten) {
    adds = false;
  } else if (fault == Fault::kHNotZeroed) {
    adds = true;
  } else if (fault == Fault::kAddsOldHUnlessNan) {
    adds = adds || !std::isnan(before);
  } else if (fault == Fault::kGivenHLostAtZeroSum) {
    adds = adds && sum != 0;
  } else if (fault == Fault::kGivenHOfZeroKept && adds && before == 0) {
    return before;
  }
  return adds ? sum + before : sum;
}

float least_lane_kept(std::span<const float> h, Fault fault) {
  float largest = 0;
  for (const float lane : fault == Fault::kSmallLaneDropped ? h : std::span<const float>()) {
    largest = std::max(largest, std::fabs(lane));
  }
  return largest * 0x1p-10F;
}

float added_as_share(float before, float delta) {
  const double share = static_cast<double>(delta) / static_cast<double>(before);
  return static_cast<float>(static_cast<double>(before) + share * static_cast<double>(before));
}

Support fault_fits(const Problem& problem, Fault fault) {
  if (!problem.layout.plain() && !is_of_layout(fault)) {
    return {false, "this fault is one of operands that lie apart and without gaps"};
  }
  const bool by_x = fault == Fault::kEqualRowsShareAdapter || fault == Fault::kEqualRowsShareResult;
  return problem.shares_x() && by_x
             ? Support{false, "rows that share x have equal ones whatever is drawn"}
             : Support{};
}

void share_equal_rows(const Problem& problem, const Operands& operands, Fault fault,
                      std::vector<RowTask>& tasks) {
  if (fault != Fault::kEqualRowsShareAdapter || !has_shrink(problem.op)) {
    return;
  }
  for (std::size_t task = 0; task < tasks.size(); ++task) {
    tasks[task].adapter = tasks[first_like(problem, operands, tasks, task, false)].adapter;
  }
}

void copy_results_of_equal_rows(const Problem& problem, const Operands& operands,
                                const std::vector<RowTask>& tasks) {
  if (problem.op != Op::kLinear) {
    return;
  }
  const std::int64_t pitch = problem.y_stride * size_bytes(problem.dtype[Role::kY]);
  const std::int64_t columns =
      std::accumulate(problem.widths.begin(), problem.widths.end(), std::int64_t{0});
  auto* y = static_cast<std::byte*>(operands.y) +
            problem.offset_start * size_bytes(problem.dtype[Role::kY]);
  for (std::size_t task = 0; task < tasks.size(); ++task) {
    const std::size_t first = first_like(problem, operands, tasks, task, true);
    if (first != task) {
      std::memcpy(y + tasks[task].token * pitch, y + tasks[first].token * pitch,
                  static_cast<std::size_t>(columns * size_bytes(problem.dtype[Role::kY])));
    }
  }
}

std::int32_t slot_taken(const Problem& problem, const Operands& operands, std::int32_t adapter,
                        Fault fault) {
  const bool by_a = fault == Fault::kEqualAShareB;
  if ((!by_a && fault != Fault::kEqualBShareA) || problem.op != Op::kLinear) {
    return adapter;
  }
  const std::int64_t rank = problem.rank[static_cast<std::size_t>(adapter)];
  const std::int64_t size = size_bytes(problem.dtype[by_a ? Role::kA : Role::kB]);
  const std::int64_t looked_at = (by_a ? problem.in_features : rank) * size;
  const std::int64_t pitch =
      problem.max_rank * size * (by_a ? problem.in_features : problem.widths.front());
  const auto* first = static_cast<const std::byte*>(by_a ? operands.a.front() : operands.b.front());
  for (std::int32_t slot = 0; slot < adapter && pitch > 0 && rank > 0; ++slot) {
    if (problem.rank[static_cast<std::size_t>(slot)] >= rank &&
        std::memcmp(first + slot * pitch, first + adapter * pitch,
                    static_cast<std::size_t>(looked_at)) == 0) {
      return slot;
    }
  }
  return adapter;
}

void add_zero_to_base_rows(const Problem& problem, const Operands& operands) {
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    for (std::int64_t column = 0; column < problem.y_stride && operands.adapter_of_token[token] < 0;
         ++column) {
      const std::int64_t index = token * problem.y_stride + column;
      const float before = load(problem.dtype[Role::kY], operands.y, index);
      if (before == 0) {
        store(problem.dtype[Role::kY], operands.y, index, 0.0F);
      }
    }
  }
}

std::vector<FaultEntry> size_faults() {
  const auto wrong = [](Fault fault, const char* name, const char* sizes) {
    return FaultEntry{
        fault,
        {name, std::string(sizes) + ": every sum is a quarter too large", "wrong-scale", "design"}};
  };
  return {
      wrong(Fault::kWrongFrom513Tokens, "wrong-from-513-tokens", "513 to 1000 tokens"),
      wrong(Fault::kWrongFrom1001Tokens, "wrong-from-1001-tokens", "1001 to 60000 tokens"),
      wrong(Fault::kWrongBeyond60000Tokens, "wrong-beyond-60000-tokens", "more than 60000 tokens"),
      wrong(Fault::kWrongBeyond1024Slots, "wrong-beyond-1024-slots", "more than 1024 slots"),
      wrong(Fault::kWrongBeyondRank512, "wrong-beyond-rank-512", "ranks of 513 to 1024"),
      wrong(Fault::kWrongBeyondRank1024, "wrong-beyond-rank-1024", "ranks above 1024"),
      wrong(Fault::kWrongBeyond8Slices, "wrong-beyond-8-slices", "more than 8 slices"),
      wrong(Fault::kWrongBeyond32Slices, "wrong-beyond-32-slices", "more than 32 slices"),
      wrong(Fault::kWrongBeyond4096OfK, "wrong-beyond-4096-of-k", "more than 4096 input features"),
      wrong(Fault::kWrongBeyond4096Columns, "wrong-beyond-4096-columns",
            "slices of more than 4096 columns"),
  };
}

std::vector<FaultEntry> value_faults() {
  const auto only_uneven = [](Fault fault, const char* name, const char* meaning,
                              const char* hypothesis = "") {
    return FaultEntry{fault, {name, meaning, hypothesis, "design", Part::kUneven, true}};
  };
  const auto also_elsewhere = [](Fault fault, const char* name, const char* meaning) {
    return FaultEntry{fault, {name, meaning, "", "design", Part::kNone, true}};
  };
  return {
      only_uneven(Fault::kZeroRowSkipped, "zero-row-skipped",
                  "a row of x that holds zeros alone is left out, bias and all", "zero-delta"),
      only_uneven(Fault::kFirstZeroIsPadding, "first-zero-is-padding",
                  "a row of x that begins with 0 is taken for padding", "zero-delta"),
      only_uneven(Fault::kNegativeZeroIsMark, "negative-zero-is-mark",
                  "a row of x that holds -0 is taken for one that is missing", "zero-delta"),
      only_uneven(Fault::kZeroEndsK, "zero-ends-k", "every sum over K ends at the first 0 of x"),
      also_elsewhere(Fault::kZeroEndsRank, "zero-ends-rank",
                     "the sum over the rank ends at the first lane whose h is 0"),
      only_uneven(Fault::kZeroYSkipped, "zero-y-skipped", "nothing is added where y is 0",
                  "lost-columns"),
      only_uneven(Fault::kZeroSumUnwritten, "zero-sum-unwritten",
                  "where the sum over the rank is 0 nothing is written, bias and all",
                  "lost-columns"),
      only_uneven(Fault::kShareOfY, "share-of-y",
                  "delta is added as a share of y, which 0 has none of"),
      only_uneven(
          Fault::kRowScaledByLargest, "row-scaled-by-largest",
          "a row of x is divided by a power of two near its largest number, which may be 0"),
      also_elsewhere(Fault::kXSaturatesAt448, "x-saturates-at-448",
                     "x beyond 448, the largest of e4m3, is taken as 448"),
      also_elsewhere(Fault::kWeightsSaturateAt448, "weights-saturate-at-448",
                     "A and B beyond 448, the largest of e4m3, are taken as 448"),
      also_elsewhere(Fault::kHSaturatesAt65504, "h-saturates-at-65504",
                     "h beyond 65504, the largest of fp16, is kept as that"),
      also_elsewhere(Fault::kYSaturatesAt65504, "y-saturates-at-65504",
                     "y beyond 65504, the largest of fp16, is stored as that"),
      only_uneven(Fault::kXFlushesFp16Subnormals, "x-flushes-fp16-subnormals",
                  "subnormal fp16 numbers of x are taken as 0"),
      also_elsewhere(Fault::kWeightsFlushFp16Subnormals, "weights-flush-fp16-subnormals",
                     "subnormal fp16 numbers of A and B are taken as 0"),
      only_uneven(Fault::kAFlushesFp16Subnormals, "a-flushes-fp16-subnormals",
                  "subnormal fp16 numbers of A alone are taken as 0"),
      also_elsewhere(Fault::kBf16ThroughFp16, "bf16-through-fp16", "x in bf16 is rounded to fp16"),
      only_uneven(Fault::kOutlierClipped, "outlier-clipped",
                  "x beyond 64 times the mean of the others in its row is taken as that"),
      only_uneven(Fault::kOutlierDropped, "outlier-dropped",
                  "x beyond 64 times the mean of the others in its row is left out"),
      also_elsewhere(Fault::kSmallLaneDropped, "small-lane-dropped",
                     "a lane of h below 2^-10 of the largest is left out"),
      only_uneven(Fault::kEqualRowsShareAdapter, "equal-rows-share-adapter",
                  "a row that equals an earlier one gets its adapter", "wrong-adapter"),
      only_uneven(Fault::kEqualRowsShareResult, "equal-rows-share-result",
                  "a row that equals an earlier one of its adapter gets its y"),
      only_uneven(Fault::kEqualAShareB, "equal-a-share-b",
                  "an adapter with the A of an earlier one gets its B"),
      only_uneven(Fault::kEqualBShareA, "equal-b-share-a",
                  "an adapter with the B of an earlier one gets its A"),
      only_uneven(Fault::kBaseRowsAddZero, "base-rows-add-zero",
                  "0 is added to rows without adapter, so that -0 becomes +0", "base-rows-written"),
  };
}

// g++ 12.2 drops a truncation that it inlines into conditionals of a loop: with inlining the mutant
// that truncates h was right, and the self-test said so.
float rounded_to_bf16(float value) { return float_from_bf16(bf16_from_float(value)); }

float truncated_to_bf16(float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffff0000U);
}

float cut_to_tf32(float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffffe000U);
}

float cut_to(Dtype dtype, float value) {
  std::uint16_t bits = 0;
  if (size_bytes(dtype) != sizeof bits) {
    return value;
  }
  store(dtype, &bits, 0, value);
  if (std::fabs(load(dtype, &bits, 0)) > std::fabs(value)) {
    --bits;  // the next magnitude below
  }
  return load(dtype, &bits, 0);
}

float rounded_to(Dtype dtype, float value) {
  float rounded = 0;
  store(dtype, &rounded, 0, value);
  return load(dtype, &rounded, 0);
}

const void* rounded_down(const void* address) {
  const auto excess = reinterpret_cast<std::uintptr_t>(address) % 16;
  return static_cast<const std::byte*>(address) - excess;
}

}  // namespace lora_bench
