#include "measure/small_changes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "core/dtype.h"
#include "core/random.h"
#include "workload/excerpt.h"
#include "workload/fill_sizes.h"
#include "workload/weight_scales.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kStream = 1ULL << 18;
// What a change adds to h, which else is about 1; of B, how many times the delta it adds to y.
constexpr double kEffect = 16;
constexpr double kMost = 0x1p14;  // far below what fp16 holds
constexpr std::int64_t kTries = 8;
constexpr std::size_t kAdapters = 2;

// Random numbers for one operand, one after the other.
class Dice {
 public:
  Dice(const SmallChange& change, std::uint64_t operand)
      : secret_(change.secret), stream_(kStream + operand) {}
  std::int64_t below(std::int64_t bound) { return drawn_below(secret_, stream_, next_++, bound); }
  // Of a few drawn numbers below `bound` the one with the largest `size`.
  template <typename Size>
  std::int64_t telling(std::int64_t bound, const Size& size) {
    std::int64_t best = below(bound);
    for (std::int64_t turn = 1; turn < kTries; ++turn) {
      const std::int64_t other = below(bound);
      best = size(other) > size(best) ? other : best;
    }
    return best;
  }

 private:
  std::uint64_t secret_, stream_;
  std::int64_t next_ = 0;
};

double magnitude(const HostTensor& tensor, std::int64_t index) {
  return std::fabs(static_cast<double>(load(tensor.dtype, tensor.data.data(), index)));
}

// Of the other sign than before.
void replace(const SmallChange& change, HostTensor& tensor, std::int64_t index, double size) {
  const float before = load(tensor.dtype, tensor.data.data(), index);
  const double most = std::min(kMost, largest_finite(tensor.dtype));
  const double after = std::isfinite(size) ? std::min(size, most) : most;
  if (change.replaced != nullptr) {
    change.replaced->push_back({&tensor, index, before});
  }
  store(tensor.dtype, tensor.data.data(), index,
        static_cast<float>(std::copysign(after, -static_cast<double>(before))));
}

double largest_shrink_scale(const Problem& problem) {
  double largest = 1;
  for (const float scale : problem.scale) {
    const bool applied = problem.scale_at == ScaleAt::kShrink;
    largest = std::max(largest, applied ? std::fabs(static_cast<double>(scale)) : 1.0);
  }
  return largest;
}

// What a changed number may add to any h: an h of fp16 is the sum of two of these, of x and of A,
// and of what the fill makes of it.
double most_of_h(const Problem& problem) {
  return problem.dtype[Role::kH] == Dtype::kFp16 ? 0x1p14 / largest_shrink_scale(problem)
                                                 : std::numeric_limits<double>::infinity();
}

// What an element of x or a given h is times, of a row as Problem::row_of_activations has it.
double scale_of_row(const Problem& problem, const Tensors& tensors, std::int64_t row,
                    std::int64_t column) {
  return problem.has_scaled_activations()
             ? magnitude(problem.has_scaled_x() ? tensors.x_scale : tensors.h_scale,
                         problem.scales_of_rows().at(row, problem.tokens, column))
             : 1;
}

// Its magnitude, the scale included.
double size_of_x(const Problem& problem, const Tensors& tensors, std::int64_t x_row,
                 std::int64_t k) {
  return magnitude(tensors.x, x_row * problem.x_stride + k) *
         scale_of_row(problem, tensors, x_row, k);
}

// Of all rows: in another batch any may meet the adapter.
double largest_x(const SmallChange& change, const Tensors& tensors, std::int64_t k) {
  double largest = 0;
  const std::int64_t rows =
      change.problem.shares_x() ? change.problem.x_rows() : change.problem.tokens;
  for (std::int64_t row = 0; row < rows; ++row) {
    largest = std::max(largest, size_of_x(change.problem, tensors, row, k));
  }
  return largest;
}

// A row for each of the first few adapters.
std::vector<std::int64_t> row_of_adapters(const SmallChange& change) {
  std::vector<std::int64_t> rows;
  for (const std::int64_t row : change.rows) {
    const bool known = std::any_of(rows.begin(), rows.end(), [&](std::int64_t other) {
      return slot_of(change.problem, other) == slot_of(change.problem, row);
    });
    if (!known && rows.size() < kAdapters) {
      rows.push_back(row);
    }
  }
  return rows;
}

// A slice that computes something.
std::size_t any_slice(const SmallChange& change, Dice& dice) {
  const std::vector<std::int64_t>& widths = change.problem.widths;
  return static_cast<std::size_t>(dice.telling(change.problem.slices(), [&](std::int64_t slice) {
    return widths[static_cast<std::size_t>(slice)] > 0 ? 1 : 0;
  }));
}

// Where A of a slot, as the set has it, keeps an element of a lane.
std::int64_t place_of_a(const SmallChange& change, const HostTensor& a, std::int64_t slot,
                        std::int64_t lane, std::int64_t k) {
  return drawn_element({change.problem, Role::kA, a}, slot, change.set,
                       lane * change.problem.in_features + k);
}

// An element of A or B of a slice, by slot.
struct WeightPlace {
  Role weights = Role::kA;
  std::size_t slice = 0;
  std::int64_t slot = 0, row = 0, column = 0;
};

const HostTensor& scales_of(const Tensors& tensors, const WeightPlace& at) {
  return (at.weights == Role::kA ? tensors.a_scale : tensors.b_scale)[at.slice];
}

// Where the set keeps the scale of it.
std::int64_t place_of_scale(const SmallChange& change, const Tensors& tensors,
                            const WeightPlace& at) {
  const Problem& problem = change.problem;
  const ScaleBlocks blocks = problem.scales_of(at.weights, static_cast<std::int64_t>(at.slice));
  const Role role = at.weights == Role::kA ? Role::kAScale : Role::kBScale;
  return drawn_element({problem, role, scales_of(tensors, at)}, at.slot, change.set,
                       blocks.at(0, at.row, at.column));
}

// What it is times there, as the set has it.
double scale_of(const SmallChange& change, const Tensors& tensors, const WeightPlace& at) {
  return change.problem.has_scaled_weights()
             ? magnitude(scales_of(tensors, at), place_of_scale(change, tensors, at))
             : 1;
}

// Magnitude of A at a place, its scale included.
double size_of_a(const SmallChange& change, const Tensors& tensors, const WeightPlace& at) {
  const HostTensor& a = tensors.a[at.slice];
  return magnitude(a, place_of_a(change, a, at.slot, at.row, at.column)) *
         scale_of(change, tensors, at);
}

// Mean magnitude of A over the lanes of a slot that hold numbers, at one element of K.
double mean_of_a(const SmallChange& change, const Tensors& tensors, std::int64_t slot,
                 std::int64_t k) {
  double sum = 0, terms = 0;
  for (std::size_t slice = 0; slice < tensors.a.size(); ++slice) {
    const bool has_a = tensors.a[slice].elements > 0;
    for (std::int64_t lane = 0; lane < change.problem.own_lanes(slot) && has_a; ++lane) {
      sum += size_of_a(change, tensors, {Role::kA, slice, slot, lane, k});
      ++terms;
    }
  }
  return sum / terms;
}

// Of A of all slots in use; of another set too, which holds what was drawn.
double largest_a(const SmallChange& change, const Tensors& tensors, std::int64_t k) {
  const Problem& problem = change.problem;
  double largest = static_cast<double>(fill_sizes(problem, Fill::kTiming, 0).a.factor) *
                   (problem.has_scaled_weights() ? kLargestDrawnScale : 1);
  for (const std::int64_t slot : problem.plan.active_ids) {
    for (std::size_t slice = 0; slice < tensors.a.size(); ++slice) {
      const bool has_a = tensors.a[slice].elements > 0;
      for (std::int64_t lane = 0; lane < problem.own_lanes(slot) && has_a; ++lane) {
        largest = std::max(largest, size_of_a(change, tensors, {Role::kA, slice, slot, lane, k}));
      }
    }
  }
  return largest;
}

}  // namespace

std::uint64_t drawn_secret() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

std::int64_t drawn_below(std::uint64_t secret, std::uint64_t stream, std::int64_t index,
                         std::int64_t bound) {
  return static_cast<std::int64_t>(random_below(secret, stream, static_cast<std::uint64_t>(index),
                                                static_cast<std::uint64_t>(bound)));
}

std::vector<std::int64_t> drawn_of(std::vector<std::int64_t> numbers, std::int64_t most,
                                   std::uint64_t secret, std::uint64_t stream) {
  const std::int64_t all = std::ssize(numbers);
  const std::int64_t wanted = std::min(most, all);
  for (std::int64_t index = 0; index < wanted; ++index) {
    const std::int64_t other = index + drawn_below(secret, stream, index, all - index);
    std::swap(numbers[static_cast<std::size_t>(index)], numbers[static_cast<std::size_t>(other)]);
  }
  numbers.resize(static_cast<std::size_t>(wanted));
  return numbers;
}

std::vector<std::int64_t> count_to(std::int64_t past) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(past));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::int64_t slot_of(const Problem& problem, std::int64_t row) {
  return problem.plan.adapter_of_token[static_cast<std::size_t>(row)];
}

std::int64_t rank_of(const Problem& problem, std::int64_t slot) {
  return problem.rank[static_cast<std::size_t>(slot)];
}

std::vector<std::int64_t> owned_rows(const Problem& problem) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < problem.tokens; ++row) {
    const std::int64_t slot = slot_of(problem, row);
    if (slot >= 0 && rank_of(problem, slot) > 0) {
      rows.push_back(row);
    }
  }
  return rows;
}

void put_back(const Replaced& replaced) {
  for (auto old = replaced.rbegin(); old != replaced.rend(); ++old) {
    store(old->tensor->dtype, old->tensor->data.data(), old->index, old->value);
  }
}

bool takes_one_sign(const Problem& problem) {
  // Of uniform numbers half the largest is the mean.
  const auto largest_a = static_cast<double>(fill_sizes(problem, Fill::kTiming, 0).a.factor);
  return static_cast<double>(problem.in_features) * largest_a / 4 <= most_of_h(problem);
}

void change_a(const SmallChange& change, Tensors& tensors) {
  const Problem& problem = change.problem;
  Dice dice(change, 0);
  for (const std::int64_t row : row_of_adapters(change)) {
    const std::int64_t slot = slot_of(problem, row);
    const std::size_t slice = any_slice(change, dice);
    HostTensor& a = tensors.a[slice];
    if (a.elements == 0) {
      continue;
    }
    const std::int64_t x_row = problem.x_row(static_cast<std::int64_t>(slice), row);
    const auto x = [&](std::int64_t k) { return size_of_x(problem, tensors, x_row, k); };
    const std::int64_t k = dice.telling(problem.in_features, x);
    const std::int64_t lane = dice.below(problem.own_lanes(slot));
    const double size =
        std::min(kEffect / x(k), most_of_h(problem) / largest_x(change, tensors, k));
    replace(change, a, place_of_a(change, a, slot, lane, k),
            size / scale_of(change, tensors, {Role::kA, slice, slot, lane, k}));
  }
}

void change_b(const SmallChange& change, Tensors& tensors) {
  const Problem& problem = change.problem;
  Dice dice(change, 1);
  for (const std::int64_t row : row_of_adapters(change)) {
    const std::int64_t slot = slot_of(problem, row);
    const std::size_t slice = any_slice(change, dice);
    HostTensor& b = tensors.b[slice];
    if (b.elements == 0) {
      continue;
    }
    const std::int64_t lanes = problem.own_lanes(slot);
    const std::int64_t output = dice.below(problem.widths[slice]);
    const std::int64_t first = output * problem.max_rank;
    const auto place = [&](std::int64_t lane) {
      return drawn_element({problem, Role::kB, b}, slot, change.set, first + lane);
    };
    const auto scale = [&](std::int64_t lane) {
      return scale_of(change, tensors, {Role::kB, slice, slot, output, lane});
    };
    double sum = 0;
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      sum += magnitude(b, place(lane)) * scale(lane);
    }
    // The delta is a sum of as many terms with signs that cancel.
    const std::int64_t changed = dice.below(lanes);
    replace(change, b, place(changed),
            kEffect * sum / std::sqrt(static_cast<double>(lanes)) / scale(changed));
  }
}

namespace {

// So much that lanes, or outputs, of a block of the slot are others; h of fp16 stays finite.
void change_scale_of(Role weights, const SmallChange& change, Tensors& tensors) {
  const Problem& problem = change.problem;
  const bool of_a = weights == Role::kA;
  Dice dice(change, of_a ? 4 : 5);
  for (const std::int64_t row : row_of_adapters(change)) {
    const std::int64_t slot = slot_of(problem, row);
    const std::size_t slice = any_slice(change, dice);
    HostTensor& scales = (of_a ? tensors.a_scale : tensors.b_scale)[slice];
    if (scales.elements == 0) {
      continue;
    }
    const std::int64_t lane = dice.below(problem.own_lanes(slot));
    const WeightPlace at{weights, slice, slot, of_a ? lane : dice.below(problem.widths[slice]),
                         of_a ? dice.below(problem.in_features) : lane};
    const double factor = of_a ? std::clamp(most_of_h(problem) / kEffect, 1.0, kEffect) : kEffect;
    replace(change, scales, place_of_scale(change, tensors, at),
            factor * scale_of(change, tensors, at));
  }
}

}  // namespace

void change_a_scale(const SmallChange& change, Tensors& tensors) {
  change_scale_of(Role::kA, change, tensors);
}

void change_b_scale(const SmallChange& change, Tensors& tensors) {
  change_scale_of(Role::kB, change, tensors);
}

// Of the row of one adapter alone: h of fp16 stays finite as above.
void change_row_scale(const SmallChange& change, Tensors& tensors) {
  const Problem& problem = change.problem;
  Dice dice(change, 6);
  const ScalesOfRows scales = problem.scales_of_rows();
  const double factor = std::clamp(most_of_h(problem) / kEffect, 1.0, kEffect);
  for (const std::int64_t row : row_of_adapters(change)) {
    const auto slice = static_cast<std::int64_t>(any_slice(change, dice));
    const std::int64_t of_slice = problem.row_of_activations(slice, row);
    const std::int64_t column = dice.below(
        has_shrink(problem.op) ? problem.in_features : problem.own_lanes(slot_of(problem, row)));
    replace(change, problem.has_scaled_x() ? tensors.x_scale : tensors.h_scale,
            scales.at(of_slice, problem.tokens, column),
            factor * scale_of_row(problem, tensors, of_slice, column));
    if (!scales.by_token) {
      return;  // twice is nothing
    }
  }
}

void change_bias(const SmallChange& change, Tensors& tensors) {
  const Problem& problem = change.problem;
  const ElementLaw law = fill_sizes(problem, Fill::kTiming, 0).bias;
  Dice dice(change, 3);
  for (const std::int64_t row : row_of_adapters(change)) {
    const std::size_t slice = any_slice(change, dice);
    HostTensor& bias = tensors.bias[slice];
    if (bias.elements > 0) {
      const std::int64_t output = dice.below(problem.widths[slice]);
      replace(
          change, bias,
          drawn_element({problem, Role::kBias, bias}, slot_of(problem, row), change.set, output),
          kEffect * static_cast<double>(law.factor));
    }
  }
}

void change_rows(const SmallChange& change, Tensors& tensors) {
  const Problem& problem = change.problem;
  Dice dice(change, 2);
  for (const std::int64_t row : change.rows) {
    const std::int64_t slot = slot_of(problem, row);
    if (has_shrink(problem.op)) {
      const auto of_a = [&](std::int64_t k) { return mean_of_a(change, tensors, slot, k); };
      const std::int64_t k = dice.telling(problem.in_features, of_a);
      double size = kEffect / of_a(k);
      if (std::isfinite(most_of_h(problem))) {
        size = std::min(size, most_of_h(problem) / largest_a(change, tensors, k));
      }
      for (std::int64_t slice = 0; slice < (problem.own_inputs() ? problem.slices() : 1); ++slice) {
        const std::int64_t x_row = problem.x_row(slice, row);
        replace(change, tensors.x, x_row * problem.x_stride + k,
                size / scale_of_row(problem, tensors, x_row, k));
      }
      continue;
    }
    const auto slice = static_cast<std::int64_t>(any_slice(change, dice));
    const std::int64_t h_row = slice * problem.tokens + row;
    const std::int64_t lane = dice.below(problem.own_lanes(slot));
    replace(change, tensors.h, h_row * problem.max_rank + lane,
            kEffect / scale_of_row(problem, tensors, h_row, lane));
  }
}

void change_scales(Problem& problem, Tensors& tensors) {
  for (std::size_t slot = 0; slot < problem.scale.size(); ++slot) {
    problem.scale[slot] *= -0.5F;
    tensors.scale[slot] *= -0.5F;
  }
}

void halve_ranks(Problem& problem) {
  for (std::int64_t& rank : problem.rank) {
    rank -= rank / 2;
  }
}

Problem other_batch(const Problem& problem, std::int64_t places, Tensors& tensors) {
  Problem other = problem;
  std::vector<std::int32_t> ids = problem.plan.adapter_of_token;
  std::rotate(ids.begin(), ids.begin() + places, ids.end());
  other.plan = make_plan(ids, problem.slots);
  other = with_other_counts(other);
  halve_ranks(other);
  change_scales(other, tensors);
  return other;
}

}  // namespace lora_bench
