#include <algorithm>
#include <cmath>
#include <iterator>
#include <thread>

#include "core/bytes.h"
#include "core/dtype.h"
#include "core/random.h"
#include "reference/rounding_mode.h"
#include "verify/oracle.h"
#include "verify/verify.h"

namespace lora_bench {
namespace {

// Each is followed through every launch, so a few must stand for all.
constexpr std::size_t kElements = 256;
constexpr std::uint64_t kElementStream = 0x656c656d656e74ULL;

// Between which values y can be after some launches, the worst of every rounding taken each time.
// Rounding is monotone, so the ends of the interval are followed alone.
struct Reach {
  double least = 0, most = 0;

  // False once nothing moves any more.
  bool add(double delta, double error, double error_of_y, reference::Number number) {
    const Reach before = *this;
    least = reference::round_to(number, least + delta - error - error_of_y * std::fabs(least));
    most = reference::round_to(number, most + delta + error + error_of_y * std::fabs(most));
    return least != before.least || most != before.most;
  }
};

// Roundings of y itself in one launch, and room for those of a declared rounding of delta.
double error_of_y(const Problem& problem, const Numerics& numerics) {
  const double roundings = 2 * static_cast<double>(numerics.expand_depth + 2);
  const bool apart = problem.bias && numerics.bias_added != BiasAdded::kWithDelta;
  return roundings * numerics.unit_roundoff + (apart ? unit_roundoff(problem.dtype[Role::kY]) : 0);
}

double value_at(Dtype dtype, const void* array, std::int64_t index) {
  return static_cast<double>(load(dtype, array, index));
}

// What y would be had every second launch been left out, and nothing been rounded.
double every_second(std::int64_t rounds, double before, const std::vector<reference::Rows>& deltas,
                    std::size_t at) {
  const auto sum_from = [&](std::size_t first) {
    double sum = 0;
    for (std::size_t set = first; set < deltas.size(); set += 2) {
      sum += deltas[set].expected[at];
    }
    return sum;
  };
  // Of an odd number of sets the next round leaves out the others.
  const std::int64_t turned = deltas.size() % 2 == 0 ? 0 : rounds / 2;
  return before + static_cast<double>(rounds - turned) * sum_from(0) +
         static_cast<double>(turned) * sum_from(1);
}

bool proves_nothing(const Reach& right, double left_out) {
  return !std::isfinite(right.least) || !std::isfinite(right.most) ||
         (right.least <= left_out && left_out <= right.most);
}

Reach reach_after(std::int64_t rounds, double before, const std::vector<reference::Rows>& deltas,
                  std::size_t at, const Problem& problem, const Numerics& numerics) {
  Reach reach{before, before};
  bool moves = true;
  for (std::int64_t round = 0; round < rounds && moves; ++round) {
    moves = false;
    for (const reference::Rows& delta : deltas) {
      moves |= reach.add(delta.expected[at], delta.bound[at], error_of_y(problem, numerics),
                         number_of(problem.dtype[Role::kY]));
    }
  }
  return reach;
}

// Of each set, on all cores: there may be hundreds.
std::vector<reference::Rows> deltas_of(const Problem& problem,
                                       const std::vector<const Tensors*>& sets,
                                       const Numerics& numerics,
                                       const std::vector<std::int64_t>& rows) {
  Problem alone = problem;
  alone.add_inputs = false;
  std::vector<reference::Rows> deltas(sets.size());
  const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t of_set = (cores + std::ssize(sets) - 1) / std::ssize(sets);
  for_blocks(std::ssize(sets), 1, 0, [&](std::int64_t set, std::int64_t) {
    const auto index = static_cast<std::size_t>(set);
    deltas[index] = evaluate_rows(alone, *sets[index], numerics, rows, of_set);
  });
  return deltas;
}

// One of as many that follow each other, for every element to be as likely as the next, and the
// first that are striking.
template <typename Striking>
std::vector<std::size_t> some_owned(const reference::Rows& rows, std::uint64_t seed,
                                    const Striking& striking) {
  std::vector<std::size_t> owned;
  for (std::size_t at = 0; at < rows.owned.size(); ++at) {
    if (rows.owned[at] != 0) {
      owned.push_back(at);
    }
  }
  const std::size_t step = std::max<std::size_t>(owned.size() / kElements, 1);
  std::vector<std::size_t> drawn;
  for (std::size_t first = 0; first < owned.size(); first += step) {
    const std::size_t count = std::min(step, owned.size() - first);
    drawn.push_back(owned[first + random_below(seed, kElementStream, first, count)]);
  }
  const std::size_t most = 2 * drawn.size();
  for (std::size_t index = 0; index < owned.size() && drawn.size() < most; ++index) {
    if (striking(owned[index])) {
      drawn.push_back(owned[index]);
    }
  }
  return drawn;
}

void note_wrong(const Problem& problem, std::int64_t token, std::int64_t column, const Reach& right,
                double got, Comparison& found) {
  if (found.wrong++ > 0) {
    return;
  }
  const Place place = place_of(problem, column);
  found.first.push_back({token, problem.plan.adapter_of_token[static_cast<std::size_t>(token)],
                         place.slice, place.column, (right.least + right.most) / 2, got,
                         (right.most - right.least) / 2});
}

}  // namespace

Comparison compare_accumulated(const Problem& problem, const std::vector<const Tensors*>& sets,
                               const Numerics& numerics, const void* got, std::int64_t rounds,
                               std::vector<std::int64_t> rows, std::uint64_t seed) {
  const reference::DefaultRounding nearest;
  Comparison found;
  const Tensors& tensors = *sets.front();
  if (const std::optional<Failure> stray = scan_all_rows(problem, tensors, got)) {
    found.compared = stray->compared;
    found.wrong = stray->wrong;
    found.first = stray->first;
    return found;
  }
  std::sort(rows.begin(), rows.end());
  const std::vector<reference::Rows> deltas = deltas_of(problem, sets, numerics, rows);
  const reference::Rows& delta = deltas.front();
  const auto columns = static_cast<std::size_t>(delta.columns);
  std::int64_t unproved = 0;
  const auto index_of = [&](std::size_t at) {
    return output_index(problem, delta.tokens[at / columns],
                        static_cast<std::int64_t>(at % columns));
  };
  const auto infinite = [&](std::size_t at) {
    return std::isinf(value_at(problem.dtype[Role::kY], got, index_of(at)));
  };
  for (const std::size_t at : some_owned(delta, seed, infinite)) {
    const std::int64_t token = delta.tokens[at / columns];
    const auto column = static_cast<std::int64_t>(at % columns);
    const std::int64_t index = index_of(at);
    const double before = value_at(problem.dtype[Role::kY], tensors.y.data.data(), index);
    const double now = value_at(problem.dtype[Role::kY], got, index);
    const Reach right = reach_after(rounds, before, deltas, at, problem, numerics);
    ++found.compared;
    ++found.owned;
    unproved += proves_nothing(right, every_second(rounds, before, deltas, at)) ? 1 : 0;
    if (!(right.least <= now && now <= right.most)) {
      note_wrong(problem, token, column, right, now, found);
    }
  }
  found.zero_share =
      found.owned == 0 ? 0 : static_cast<double>(unproved) / static_cast<double>(found.owned);
  return found;
}

}  // namespace lora_bench
