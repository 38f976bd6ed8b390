#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "core/bytes.h"
#include "reference/nearest.h"
#include "reference/rounding_mode.h"
#include "verify/groundwork.h"
#include "verify/oracle.h"
#include "verify/verify.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kElementsPerChunk = 1 << 22;
// That one thread compares in one go.
constexpr std::int64_t kElementsPerBlock = 1 << 16;

bool same_bits(const std::byte* left, const std::byte* right, Dtype dtype, std::int64_t index) {
  const auto bytes = static_cast<std::size_t>(size_bytes(dtype));
  const std::size_t offset = static_cast<std::size_t>(index) * bytes;
  return std::memcmp(left + offset, right + offset, bytes) == 0;
}

// Some of the rows.
class Comparer {
 public:
  Comparer(const Problem& problem, const Tensors& tensors, const void* got, Idle idle)
      : problem_(problem),
        expands_(has_expand(problem.op)),
        adds_(expands_ ? problem.add_inputs : problem.adds_to_h()),
        idle_leaves_before_(idle == Idle::kAsBefore || adds_),
        exact_(is_exact(tensors.fill) && !problem.h_quantiser),
        dtype_(output_dtype(problem)),
        element_bytes_(size_bytes(dtype_)),
        number_(number_of(dtype_)),
        format_(number_),
        got_(static_cast<const std::byte*>(got)),
        before_(output_before(problem, tensors).data.data()) {}

  void compare(const reference::Rows& rows, std::size_t begin, std::size_t end);
  [[nodiscard]] const Comparison& found() const { return found_; }
  [[nodiscard]] std::int64_t proves_nothing() const { return proves_nothing_; }
  [[nodiscard]] std::int64_t getting_nothing() const { return getting_nothing_; }

 private:
  // What is accepted of an owned element.
  struct Accepted {
    double least = 0, most = 0;
  };
  [[nodiscard]] Accepted accepted(double expected, double bound) const;
  bool right_owned(const Accepted& accepted, double expected, double bound, double got);
  [[nodiscard]] bool proves_nothing(const Accepted& accepted, double idle) const;
  void note_wrong(std::int64_t token, std::int64_t column, double expected, double got,
                  double bound);
  [[nodiscard]] double without_effect(std::int64_t token, std::int64_t index) const;
  [[nodiscard]] bool coarse(const reference::Rows& rows, std::size_t row) const;
  [[nodiscard]] bool gets_nothing(std::int64_t token, std::int64_t column) const;
  [[nodiscard]] double element(const std::byte* array, std::int64_t index) const;
  [[nodiscard]] bool keeps_unowned(std::int64_t column) const {
    return expands_ || problem_.keeps_other_lanes(column / problem_.max_rank);
  }
  // Where the element lies in the output, as output_index() has it.
  [[nodiscard]] std::int64_t index_of(std::int64_t token, std::int64_t column) const {
    return expands_ ? token * problem_.y_stride + column : output_index(problem_, token, column);
  }

  const Problem& problem_;
  bool expands_;
  bool adds_;  // to what was there before
  bool idle_leaves_before_;
  bool exact_;  // one value is right: no sum behind a scale that is made is exact
  Dtype dtype_;
  std::int64_t element_bytes_;
  reference::Number number_;
  reference::Format format_;
  const std::byte* got_;
  const std::byte* before_;
  Comparison found_;
  std::int64_t proves_nothing_ = 0;
  std::int64_t getting_nothing_ = 0;
};

Comparer::Accepted Comparer::accepted(double expected, double bound) const {
  if (exact_) {
    const double nearest = format_.nearest(expected);
    return {nearest, nearest};
  }
  return {format_.nearest(expected - bound), format_.nearest(expected + bound)};
}

// Notes the share of the bound that the result needs: the least error before the final rounding
// that explains it.
bool Comparer::right_owned(const Accepted& accepted, double expected, double bound, double got) {
  if (!(accepted.least <= got && got <= accepted.most)) {
    return false;
  }
  if (!exact_ && std::isfinite(got) && bound > 0) {
    const double needed = std::fabs(got - expected) - reference::spacing(number_, got) / 2;
    constexpr double kBelow = 1 - 0x1p-50;  // roundings of the product: divided is what may be more
    if (needed >= kBelow * found_.bound_share * bound) {
      found_.bound_share = std::max(found_.bound_share, std::min(1.0, needed / bound));
    }
  }
  return true;
}

// A bound so wide that it reaches what nothing done would leave, or everything, cannot be missed.
bool Comparer::proves_nothing(const Accepted& accepted, double idle) const {
  return !std::isfinite(accepted.least) || !std::isfinite(accepted.most) ||
         (accepted.least <= idle && idle <= accepted.most);
}

double Comparer::element(const std::byte* array, std::int64_t index) const {
  const auto bits_of = [&]<typename Bits>(Bits bits) {
    std::memcpy(&bits, array + index * static_cast<std::int64_t>(sizeof bits), sizeof bits);
    return format_.decode(bits);
  };
  switch (element_bytes_) {
    case 1:
      return bits_of(std::uint8_t{});
    case 2:
      return bits_of(std::uint16_t{});
    default:
      return bits_of(std::uint32_t{});
  }
}

// The value that an owned element has if the op did nothing that shows. What is to be zeroed shows
// by what it held before.
double Comparer::without_effect(std::int64_t token, std::int64_t index) const {
  return idle_leaves_before_ || !problem_.acts_on(token) ? element(before_, index) : 0;
}

// Whether nothing comes to an owned element, whatever x is: a lane of h behind those that hold
// numbers, a column of a slice without a bias where the adapter has rank 0. It is held against
// that, but a case with many of them is no duller.
bool Comparer::gets_nothing(std::int64_t token, std::int64_t column) const {
  const std::int32_t adapter = problem_.plan.adapter_of_token[static_cast<std::size_t>(token)];
  if (!expands_) {
    return !problem_.own_rank.empty() && column % problem_.max_rank >= problem_.own_lanes(adapter);
  }
  return problem_.acts(adapter) && problem_.rank[static_cast<std::size_t>(adapter)] == 0 &&
         !problem_.has_bias(place_of(problem_, column).slice);
}

// Whether what is declared would hide an error of an eighth of a row's result, as it is typically,
// in most of its elements. What the output type itself cannot hold is no matter of a declaration.
bool Comparer::coarse(const reference::Rows& rows, std::size_t row) const {
  constexpr double kHidden = 0.125;
  const auto first = static_cast<std::int64_t>(row) * rows.columns;
  double squares = 0, counted = 0;
  const auto each = [&](const auto& visit) {
    for (std::int64_t column = 0; column < rows.columns; ++column) {
      const auto at = static_cast<std::size_t>(first + column);
      if (rows.owned[at] != 0 && format_.holds(rows.expected[at]) &&
          !gets_nothing(rows.tokens[row], column)) {
        const std::int64_t index = index_of(rows.tokens[row], column);
        visit(rows.expected[at] - (adds_ ? element(before_, index) : 0), rows.bound[at]);
      }
    }
  };
  each([&](double result, double /*bound*/) {
    squares += result * result;
    ++counted;
  });
  const double hidden = kHidden * std::sqrt(squares / std::max(counted, 1.0));
  double of_these = 0;
  each([&](double /*result*/, double bound) { of_these += bound < hidden ? 0 : 1; });
  return squares > 0 && 2 * of_these > counted;
}

void Comparer::compare(const reference::Rows& rows, std::size_t begin, std::size_t end) {
  for (std::size_t row = begin; row < end; ++row) {
    bool tells = false;
    for (std::int64_t column = 0; column < rows.columns; ++column) {
      const std::size_t at =
          row * static_cast<std::size_t>(rows.columns) + static_cast<std::size_t>(column);
      const bool owned = rows.owned[at] != 0;
      if (!owned && !keeps_unowned(column)) {
        continue;  // scratch: the op may write there what it likes
      }
      const std::int64_t index = index_of(rows.tokens[row], column);
      const double got = element(got_, index);
      double expected = rows.expected[at];
      ++found_.compared;
      bool right = false;
      if (owned) {
        const Accepted range = accepted(expected, rows.bound[at]);
        ++found_.owned;
        const bool blind = proves_nothing(range, without_effect(rows.tokens[row], index));
        if (gets_nothing(rows.tokens[row], column)) {
          ++getting_nothing_;
        } else {
          proves_nothing_ += blind ? 1 : 0;
        }
        tells = tells || !blind;
        right = right_owned(range, expected, rows.bound[at], got);
        expected = exact_ ? range.least : expected;  // told as the one value that would be right
      } else {
        right = same_bits(got_, before_, dtype_, index);
        expected = element(before_, index);
      }
      if (!right) {
        note_wrong(rows.tokens[row], column, expected, got, rows.bound[at]);
      }
    }
    found_.telling_rows += tells ? 1 : 0;
    found_.coarse_rows += !exact_ && coarse(rows, row) ? 1 : 0;
  }
}

void Comparer::note_wrong(std::int64_t token, std::int64_t column, double expected, double got,
                          double bound) {
  ++found_.wrong;
  if (found_.wrong_rows.empty() || found_.wrong_rows.back() != token) {
    found_.wrong_rows.push_back(token);
  }
  if (found_.first.size() < kFirstShown) {
    const Place place = place_of(problem_, column);
    found_.first.push_back({token, problem_.plan.adapter_of_token[static_cast<std::size_t>(token)],
                            place.slice, place.column, expected, got, bound});
  }
}

// The parts in the order of the rows.
class Parts {
 public:
  void add(const Comparer& part) {
    const Comparison& found = part.found();
    all_.compared += found.compared;
    all_.owned += found.owned;
    all_.wrong += found.wrong;
    all_.telling_rows += found.telling_rows;
    all_.coarse_rows += found.coarse_rows;
    all_.bound_share = std::max(all_.bound_share, found.bound_share);
    all_.wrong_rows.insert(all_.wrong_rows.end(), found.wrong_rows.begin(), found.wrong_rows.end());
    const std::size_t shown = std::min(kFirstShown - all_.first.size(), found.first.size());
    all_.first.insert(all_.first.end(), found.first.begin(),
                      found.first.begin() + static_cast<std::ptrdiff_t>(shown));
    proves_nothing_ += part.proves_nothing();
    getting_nothing_ += part.getting_nothing();
  }
  void note_partial(double largest) {
    all_.largest_partial = std::max(all_.largest_partial, largest);
  }
  [[nodiscard]] Comparison result() const {
    Comparison result = all_;
    const std::int64_t others = all_.owned - getting_nothing_;
    if (others > 0) {
      result.zero_share = static_cast<double>(proves_nothing_) / static_cast<double>(others);
    } else {
      result.zero_share = all_.owned == 0 ? 0 : 1;
    }
    return result;
  }

 private:
  Comparison all_;
  std::int64_t proves_nothing_ = 0;
  std::int64_t getting_nothing_ = 0;  // of all owned
};

void compare_rows(const Problem& problem, const Tensors& tensors, const reference::Rows& rows,
                  const void* got, Idle idle, Parts& parts) {
  const std::int64_t rows_per_block =
      std::max<std::int64_t>(1, kElementsPerBlock / std::max<std::int64_t>(1, rows.columns));
  const auto count = static_cast<std::int64_t>(rows.tokens.size());
  std::vector<Comparer> comparers(
      static_cast<std::size_t>((count + rows_per_block - 1) / rows_per_block),
      Comparer(problem, tensors, got, idle));
  for_blocks(count, rows_per_block, 0, [&](std::int64_t begin, std::int64_t end) {
    const reference::DefaultRounding nearest;
    comparers[static_cast<std::size_t>(begin / rows_per_block)].compare(
        rows, static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
  });
  parts.note_partial(rows.largest_partial);
  for (const Comparer& comparer : comparers) {
    parts.add(comparer);
  }
}

// `right` gives the oracle's values of some rows.
template <typename Right>
Comparison compare_in_chunks(const Problem& problem, const Tensors& tensors, const void* got,
                             std::vector<std::int64_t> rows, Idle idle, Right right) {
  const reference::DefaultRounding nearest;
  std::sort(rows.begin(), rows.end());
  const std::int64_t columns =
      has_expand(problem.op) ? problem.y_stride : problem.slices() * problem.max_rank;
  const auto rows_per_chunk = static_cast<std::size_t>(
      std::max<std::int64_t>(1, kElementsPerChunk / std::max<std::int64_t>(1, columns)));
  Parts parts;
  const std::span<const std::int64_t> all(rows);
  for (std::size_t first = 0; first < all.size(); first += rows_per_chunk) {
    const auto chunk = all.subspan(first, std::min(rows_per_chunk, all.size() - first));
    compare_rows(problem, tensors, *right(chunk), got, idle, parts);
  }
  return parts.result();
}

}  // namespace

bool proves_too_little(double zero_share) {
  constexpr double kMostlyZero = 0.9;
  return zero_share > kMostlyZero;
}

std::string why_no_proof(const Comparison& comparison) {
  return proves_too_little(comparison.zero_share)
             ? fmt::format("doing nothing would pass in {:.0f} % of the elements",
                           100 * comparison.zero_share)
             : "";
}

Place place_of(const Problem& problem, std::int64_t column) {
  if (!has_expand(problem.op)) {
    return {column / problem.max_rank, column % problem.max_rank};
  }
  std::int64_t start = problem.offset_start;
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    const std::int64_t past = start + problem.widths[static_cast<std::size_t>(slice)];
    if (column >= start && column < past) {
      return {slice, column - start};
    }
    start = past;
  }
  return {-1, column};
}

Comparison compare_output(const Problem& problem, const Tensors& tensors, const Numerics& numerics,
                          const void* got, std::vector<std::int64_t> rows, Idle idle) {
  return compare_in_chunks(problem, tensors, got, std::move(rows), idle,
                           [&](std::span<const std::int64_t> chunk) {
                             return std::optional(evaluate_rows(problem, tensors, numerics, chunk));
                           });
}

Comparison compare_output(Groundwork& groundwork, const Tensors& tensors, const Numerics& numerics,
                          const void* got, std::vector<std::int64_t> rows) {
  return compare_in_chunks(groundwork.problem(), tensors, got, std::move(rows), Idle::kZero,
                           [&](std::span<const std::int64_t> chunk) {
                             return groundwork.rows(tensors, numerics, chunk);
                           });
}

Comparison compare_output(DerivedStep& derived, const Numerics& numerics, const void* got) {
  const auto& [problem, tensors] = derived.step;
  return compare_in_chunks(problem, tensors, got, all_rows(problem), Idle::kZero,
                           [&](std::span<const std::int64_t> chunk) {
                             return derived.known.rows(derived.step.problem, derived.step.tensors,
                                                       numerics, chunk);
                           });
}

}  // namespace lora_bench
