#include "measure/after_timing.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <thread>
#include <utility>

#include "core/bytes.h"
#include "core/dtype.h"
#include "measure/small_changes.h"
#include "workload/excerpt.h"

namespace lora_bench {
namespace {

constexpr std::uint64_t kSetStream = 1;
constexpr std::uint64_t kPlaceStream = 2;
constexpr std::uint64_t kLastRowsStream = 1ULL << 16;
constexpr std::uint64_t kReplayedRowsStream = 1ULL << 17;
constexpr std::uint64_t kRowsStream = 1ULL << 32;
constexpr std::uint64_t kChangedRowsStream = 1ULL << 18;
constexpr std::int64_t kMostRows = 16;
constexpr std::int64_t kLeastRows = 2;
constexpr std::int64_t kRowsOfReplay = 4;
constexpr std::int64_t kRowsChanged = 4;
constexpr std::size_t kInfiniteRows = 2;
// Multiply-adds of the oracle on one core, about 0.1 s.
constexpr std::int64_t kProductsOfACore = std::int64_t{1} << 25;

std::int64_t output_row_bytes(const Problem& problem) {
  return has_expand(problem.op) ? problem.y_stride * size_bytes(problem.dtype[Role::kY])
                                : problem.max_rank * size_bytes(problem.dtype[Role::kH]);
}

std::vector<std::int64_t> count_to(std::int64_t past) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(past));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

}  // namespace

std::int64_t affordable_rows(std::int64_t products_of_row, std::int64_t cores) {
  const std::int64_t rows = cores * kProductsOfACore / std::max<std::int64_t>(1, products_of_row);
  return std::clamp(rows, kLeastRows, kMostRows);
}

std::int64_t AfterTiming::any_set(std::int64_t turn) const {
  return drawn_below(secret_, kSetStream, turn, sets_.count());
}

std::int64_t AfterTiming::any_place(std::int64_t past) const {
  return 1 + drawn_below(secret_, kPlaceStream, 0, past - 1);
}

std::vector<std::int64_t> AfterTiming::any_rows(std::uint64_t stream, std::int64_t most) const {
  return drawn_of(owned_rows(request_.problem), most, secret_, stream);
}

std::int64_t AfterTiming::rows_of_output() const {
  const Problem& problem = request_.problem;
  const std::int64_t columns =
      std::accumulate(problem.widths.begin(), problem.widths.end(), std::int64_t{0});
  const std::int64_t of_row =
      problem.max_rank * ((has_shrink(problem.op) ? problem.in_features * problem.slices() : 0) +
                          (has_expand(problem.op) ? columns : 0));
  const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  return affordable_rows(of_row * sets_.count(), cores);
}

// Of the output in room_.
Look AfterTiming::check_rows(const Tensors& tensors, const std::vector<std::int64_t>& of_sets,
                             std::int64_t rounds, std::vector<std::int64_t> rows) const {
  if (rows.empty()) {
    return {};
  }
  const Problem& whole = request_.problem;
  const Excerpt excerpt = excerpt_of(whole, std::move(rows));
  std::vector<Tensors>& sets = cut_;
  sets.resize(std::max(sets.size(), of_sets.size()));
  const int of_set = of_sets.size() == 1 ? 0 : 1;  // threads
  for_blocks(std::ssize(of_sets), 1, 0, [&](std::int64_t index, std::int64_t) {
    const auto at = static_cast<std::size_t>(index);
    sets[at] = cut_tensors(excerpt, whole, tensors, of_sets[at], of_set, std::move(sets[at]));
  });
  std::vector<const Tensors*> addresses;
  for (std::size_t set = 0; set < of_sets.size(); ++set) {
    addresses.push_back(&sets[set]);
  }
  const std::vector<std::byte> cut =
      cut_rows(excerpt, whole.tokens, room_, output_row_bytes(whole));
  return request_.check({excerpt.problem, addresses, cut, rounds, count_to(excerpt.problem.tokens),
                         excerpt.rows, secret_});
}

// The whole output, for what lies where nobody owns it; with the oracle these rows and a few with
// an infinity, which it seldom expects.
std::string AfterTiming::check_whole(const Tensors& tensors, std::int64_t output,
                                     const std::vector<std::int64_t>& of_sets, std::int64_t rounds,
                                     std::vector<std::int64_t> rows) const {
  sets_.download_output(output, room_);
  const std::vector<const Tensors*> sets{&tensors};
  const Look whole = request_.check(
      {request_.problem, sets, room_, 1, {}, count_to(request_.problem.tokens), secret_});
  if (!whole.wrong.empty()) {
    return whole.wrong;
  }
  const std::size_t more = std::min(whole.infinite_rows.size(), kInfiniteRows);
  for (std::size_t index = 0; index < more; ++index) {
    const std::int64_t row = whole.infinite_rows[index];
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) {
      rows.push_back(row);
    }
  }
  return check_rows(tensors, of_sets, rounds, std::move(rows)).wrong;
}

std::string AfterTiming::check_output(const Tensors& tensors, std::int64_t output,
                                      const Launched& launched) const {
  std::vector<std::int64_t> of_sets;
  if (sets_.outputs() > 1) {
    of_sets = {output};
  } else if (launched.accumulates) {
    of_sets = count_to(sets_.count());
  } else {
    of_sets = {sets_.count() - 1};
  }
  return check_whole(tensors, output, of_sets, launched.accumulates ? launched.rounds : 1,
                     any_rows(kRowsStream + static_cast<std::uint64_t>(output), rows_of_output()));
}

std::string AfterTiming::left_by(const Tensors& tensors, const Launched& launched) const {
  for (std::int64_t output = 0; output < sets_.outputs(); ++output) {
    std::string wrong = check_output(tensors, output, launched);
    if (!wrong.empty()) {
      return wrong;
    }
  }
  std::string wrong = sets_.damage();
  return wrong.empty() ? sets_.changed_inputs(any_set()) : wrong;
}

std::vector<std::int64_t> AfterTiming::few_rows() const {
  return any_rows(kChangedRowsStream, kRowsChanged);
}

std::vector<std::int64_t> AfterTiming::many_rows() const {
  return any_rows(kLastRowsStream, kMostRows);
}

std::string AfterTiming::left_by_one(const Tensors& tensors, std::int64_t set,
                                     std::vector<std::int64_t> rows) const {
  return check_whole(tensors, sets_.output_of_set(set), {set}, 1, std::move(rows));
}

Look AfterTiming::left_by_replay(const Tensors& tensors, std::int64_t set, std::int64_t rounds,
                                 const std::vector<std::int64_t>& rows) const {
  sets_.download_output(sets_.output_of_set(set), room_);
  return check_rows(tensors, {set}, rounds, rows);
}

std::vector<std::int64_t> AfterTiming::rows_of_replay(std::int64_t turn) const {
  return any_rows(kReplayedRowsStream + static_cast<std::uint64_t>(turn), kRowsOfReplay);
}

}  // namespace lora_bench
