#include "verify/scan.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "core/convert.h"
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

  void untouched(std::int64_t token, std::int64_t first, std::int64_t past);
  void no_nan(std::int64_t token, std::int64_t first, std::int64_t past);
  [[nodiscard]] std::optional<Failure> result() const {
    return failure_.wrong == 0 ? std::nullopt : std::optional(failure_);
  }

 private:
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

}  // namespace

bool owns_row(const Problem& problem, std::int64_t token) {
  const std::int32_t adapter = problem.plan.adapter_of_token[static_cast<std::size_t>(token)];
  return adapter != kNoAdapter && problem.rank[static_cast<std::size_t>(adapter)] > 0;
}

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
    if (!owns_row(problem, token)) {
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
  Scan scan(problem, tensors, got);
  const std::int64_t past_slices =
      std::accumulate(problem.widths.begin(), problem.widths.end(), problem.offset_start);
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    const bool owned = owns_row(problem, token);
    if (has_expand(problem.op) && !owned) {
      scan.untouched(token, 0, problem.y_stride);
    } else if (has_expand(problem.op)) {
      scan.untouched(token, 0, problem.offset_start);
      scan.no_nan(token, problem.offset_start, past_slices);
      scan.untouched(token, past_slices, problem.y_stride);
    } else if (owned) {
      const std::int32_t adapter = problem.plan.adapter_of_token[static_cast<std::size_t>(token)];
      for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
        const std::int64_t first = slice * problem.max_rank;
        const std::int64_t lanes = problem.widths[static_cast<std::size_t>(slice)] > 0
                                       ? problem.rank[static_cast<std::size_t>(adapter)]
                                       : 0;
        scan.no_nan(token, first, first + lanes);
      }
    }
  }
  return scan.result();
}

}  // namespace lora_bench
