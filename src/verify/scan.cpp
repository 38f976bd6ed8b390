#include "verify/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/bytes.h"
#include "core/dtype.h"
#include "verify/oracle.h"

namespace lora_bench {
namespace {

// Bits of infinity without the sign; a larger magnitude is NaN.
std::uint32_t infinity_bits(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return 0x7f800000U;
    case Dtype::kBf16:
      return 0x7f80U;
    case Dtype::kFp16:
      return 0x7c00U;
    case Dtype::kE4m3:
      return 0x7eU;
    case Dtype::kE5m2:
      return 0x7cU;
  }
  return 0;
}

// Elements that one thread looks at in one go.
constexpr std::int64_t kElementsPerScan = 1 << 20;

// Compiled to wide instructions: a result of hundreds of MB is read as quickly as memory gives it.
template <typename Bits>
bool any_above(const std::byte* first, std::int64_t count, std::uint32_t infinity) {
  constexpr auto kMagnitude = static_cast<Bits>((std::uint64_t{1} << (8 * sizeof(Bits) - 1)) - 1);
  Bits largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, first + static_cast<std::size_t>(i) * sizeof(Bits), sizeof(Bits));
    largest = std::max<Bits>(largest, bits & kMagnitude);
  }
  return largest > infinity;
}

bool any_above(const std::byte* first, std::int64_t count, std::size_t bytes,
               std::uint32_t infinity) {
  switch (bytes) {
    case 1:
      return any_above<std::uint8_t>(first, count, infinity);
    case 2:
      return any_above<std::uint16_t>(first, count, infinity);
    default:
      return any_above<std::uint32_t>(first, count, infinity);
  }
}

// The column of y behind the last slice.
std::int64_t columns_past(const Problem& problem) {
  return std::accumulate(problem.widths.begin(), problem.widths.end(), problem.offset_start);
}

// Visits [first, past) of the columns of a row that the op owns.
template <typename Visit>
void for_owned_columns(const Problem& problem, std::int64_t token, const Visit& visit) {
  if (!problem.acts_on(token)) {
    return;
  }
  if (has_expand(problem.op)) {
    visit(problem.offset_start, columns_past(problem));
    return;
  }
  const std::int32_t adapter = problem.plan.adapter_of_token[static_cast<std::size_t>(token)];
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    if (problem.widths[static_cast<std::size_t>(slice)] > 0) {
      const std::int64_t first = slice * problem.max_rank;
      visit(first, first + problem.rank[static_cast<std::size_t>(adapter)]);
    }
  }
}

// Some of the rows.
class Scan {
 public:
  Scan(const Problem& problem, const Tensors& tensors, const void* got)
      : problem_(problem),
        dtype_(output_dtype(problem)),
        bytes_(static_cast<std::size_t>(size_bytes(dtype_))),
        infinity_(infinity_bits(dtype_)),
        got_(static_cast<const std::byte*>(got)),
        before_(output_before(problem, tensors).data.data()) {
    failure_.level = Level::kMemory;
  }

  void rows(std::int64_t begin, std::int64_t end);
  [[nodiscard]] const Failure& found() const { return failure_; }

 private:
  void row_of_y(std::int64_t token);
  void row_of_h(std::int64_t token);
  void zeroed(std::int64_t token, std::int64_t first, std::int64_t past);
  void untouched(std::int64_t token, std::int64_t first, std::int64_t past);
  void no_nan(std::int64_t token, std::int64_t first, std::int64_t past);
  void note(const char* what, std::int64_t token, std::int64_t column);

  const Problem& problem_;
  Dtype dtype_;
  std::size_t bytes_;
  std::uint32_t infinity_;
  const std::byte* got_;
  const std::byte* before_;
  Failure failure_;
};

void Scan::untouched(std::int64_t token, std::int64_t first, std::int64_t past) {
  if (first >= past) {
    return;
  }
  failure_.compared += past - first;
  const std::size_t start = static_cast<std::size_t>(output_index(problem_, token, first)) * bytes_;
  if (std::memcmp(got_ + start, before_ + start, static_cast<std::size_t>(past - first) * bytes_) ==
      0) {
    return;
  }
  for (std::int64_t column = first; column < past; ++column) {
    const std::size_t at = start + static_cast<std::size_t>(column - first) * bytes_;
    if (std::memcmp(got_ + at, before_ + at, bytes_) != 0) {
      note("written where nobody owns the element", token, column);
    }
  }
}

void Scan::no_nan(std::int64_t token, std::int64_t first, std::int64_t past) {
  failure_.compared += past - first;
  const std::byte* element =
      got_ + static_cast<std::size_t>(output_index(problem_, token, first)) * bytes_;
  if (!any_above(element, past - first, bytes_, infinity_)) {
    return;
  }
  for (std::int64_t column = first; column < past; ++column, element += bytes_) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, element, bytes_);
    const std::uint32_t magnitude = bits & ((1U << (8 * bytes_ - 1)) - 1U);
    if (magnitude > infinity_) {
      note("NaN in the result, perhaps never written", token, column);
    }
  }
}

void Scan::note(const char* what, std::int64_t token, std::int64_t column) {
  if (failure_.wrong++ == 0) {
    failure_.what = what;
  }
  if (failure_.first.size() >= kFirstShown) {
    return;
  }
  const std::int64_t index = output_index(problem_, token, column);
  const Place place = place_of(problem_, column);
  failure_.first.push_back({token, problem_.plan.adapter_of_token[static_cast<std::size_t>(token)],
                            place.slice, place.column, load(dtype_, before_, index),
                            load(dtype_, got_, index), 0});
}

void Scan::rows(std::int64_t begin, std::int64_t end) {
  for (std::int64_t token = begin; token < end; ++token) {
    has_expand(problem_.op) ? row_of_y(token) : row_of_h(token);
  }
}

void Scan::zeroed(std::int64_t token, std::int64_t first, std::int64_t past) {
  failure_.compared += past - first;
  for (std::int64_t column = first; column < past; ++column) {
    if (load(dtype_, got_, output_index(problem_, token, column)) != 0) {
      note("not zeroed in a row that no adapter acts on", token, column);
    }
  }
}

void Scan::row_of_y(std::int64_t token) {
  std::int64_t past = 0;
  if (problem_.zeroes_idle_rows() && !problem_.acts_on(token)) {
    past = columns_past(problem_);
    untouched(token, 0, problem_.offset_start);
    zeroed(token, problem_.offset_start, past);
  }
  for_owned_columns(problem_, token, [&](std::int64_t owned_first, std::int64_t owned_past) {
    untouched(token, past, owned_first);
    no_nan(token, owned_first, owned_past);
    past = owned_past;
  });
  untouched(token, past, problem_.y_stride);
}

void Scan::row_of_h(std::int64_t token) {
  for_owned_columns(problem_, token,
                    [&](std::int64_t first, std::int64_t past) { no_nan(token, first, past); });
  const std::int32_t adapter = problem_.plan.adapter_of_token[static_cast<std::size_t>(token)];
  const std::int64_t rank =
      problem_.acts_on(token) ? problem_.rank[static_cast<std::size_t>(adapter)] : 0;
  for (std::int64_t slice = 0; slice < problem_.slices(); ++slice) {
    if (problem_.keeps_other_lanes(slice)) {
      const std::int64_t first = slice * problem_.max_rank;
      untouched(token, first + rank, first + problem_.max_rank);
    }
  }
}

// That one thread looks at in one go.
std::int64_t rows_per_scan(const Problem& problem) {
  const std::int64_t columns =
      has_expand(problem.op) ? problem.y_stride : problem.slices() * problem.max_rank;
  return std::max<std::int64_t>(1, kElementsPerScan / std::max<std::int64_t>(1, columns));
}

// What was found in earlier rows stands first.
void add_found(Failure& all, const Failure& part) {
  all.what = all.wrong == 0 ? part.what : all.what;
  all.wrong += part.wrong;
  all.compared += part.compared;
  const std::size_t room = kFirstShown - all.first.size();
  all.first.insert(
      all.first.end(), part.first.begin(),
      part.first.begin() + static_cast<std::ptrdiff_t>(std::min(room, part.first.size())));
}

}  // namespace

bool owns_lane(const Problem& problem, std::int64_t token, std::int64_t column) {
  const Place place = place_of(problem, column);
  const auto slice = static_cast<std::size_t>(place.slice);
  const std::int32_t adapter = problem.plan.adapter_of_token[static_cast<std::size_t>(token)];
  return adapter != kNoAdapter && problem.widths[slice] > 0 &&
         place.column < problem.rank[static_cast<std::size_t>(adapter)];
}

std::int64_t owned_elements(const Problem& problem) {
  std::int64_t owned = 0;
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    if (!problem.acts_on(token)) {
      continue;
    }
    const std::int32_t adapter = problem.plan.adapter_of_token[static_cast<std::size_t>(token)];
    for (const std::int64_t width : problem.widths) {
      const std::int64_t lanes = width > 0 ? problem.rank[static_cast<std::size_t>(adapter)] : 0;
      owned += has_expand(problem.op) ? width : lanes;
    }
  }
  return owned;
}

std::optional<Failure> scan_all_rows(const Problem& problem, const Tensors& tensors,
                                     const void* got) {
  const std::int64_t rows_per_block = rows_per_scan(problem);
  std::vector<Scan> scans(
      static_cast<std::size_t>((problem.tokens + rows_per_block - 1) / rows_per_block),
      Scan(problem, tensors, got));
  for_blocks(problem.tokens, rows_per_block, 0, [&](std::int64_t begin, std::int64_t end) {
    scans[static_cast<std::size_t>(begin / rows_per_block)].rows(begin, end);
  });
  Failure all;
  all.level = Level::kMemory;
  for (const Scan& scan : scans) {
    add_found(all, scan.found());
  }
  return all.wrong == 0 ? std::nullopt : std::optional(all);
}

bool holds_nan(Dtype dtype, const std::byte* first, std::int64_t count) {
  return any_above(first, count, static_cast<std::size_t>(size_bytes(dtype)), infinity_bits(dtype));
}

bool holds_infinity_or_nan(Dtype dtype, const std::byte* first, std::int64_t count) {
  return any_above(first, count, static_cast<std::size_t>(size_bytes(dtype)),
                   infinity_bits(dtype) - 1);
}

std::vector<std::int64_t> infinite_rows(const Problem& problem, const void* got) {
  constexpr std::size_t kMost = 16;
  const Dtype dtype = output_dtype(problem);
  const auto bytes = static_cast<std::size_t>(size_bytes(dtype));
  const auto is_infinite = [&](std::int64_t token) {
    bool infinite = false, nan = false;  // what is no number is told by scan_all_rows
    for_owned_columns(problem, token, [&](std::int64_t first, std::int64_t past) {
      const std::byte* element =
          static_cast<const std::byte*>(got) +
          static_cast<std::size_t>(output_index(problem, token, first)) * bytes;
      infinite = infinite || holds_infinity_or_nan(dtype, element, past - first);
      nan = nan || (infinite && holds_nan(dtype, element, past - first));
    });
    return infinite && !nan;
  };
  std::vector<char> found(static_cast<std::size_t>(problem.tokens));
  for_blocks(problem.tokens, rows_per_scan(problem), 0, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t token = begin; token < end; ++token) {
      found[static_cast<std::size_t>(token)] = is_infinite(token) ? 1 : 0;
    }
  });
  std::vector<std::int64_t> rows;
  for (std::int64_t token = 0; token < problem.tokens && rows.size() < kMost; ++token) {
    if (found[static_cast<std::size_t>(token)] != 0) {
      rows.push_back(token);
    }
  }
  return rows;
}

}  // namespace lora_bench
