#include <algorithm>
#include <utility>

#include "core/dtype.h"
#include "measure/ceilings.h"
#include "scenario/case.h"

namespace lora_bench {
namespace {

std::int64_t in_blocks(std::int64_t count, std::int64_t of_block) {
  return (count + of_block - 1) / of_block;
}

// The scales of an adapter of that rank: those of its lanes alone, and of slices with columns.
std::int64_t scale_bytes(const Problem& problem, std::int64_t rank) {
  std::int64_t scales = 0;
  for (std::int64_t slice = 0; slice < problem.slices() && problem.has_scaled_weights(); ++slice) {
    if (problem.widths[static_cast<std::size_t>(slice)] == 0) {
      continue;
    }
    const ScaleBlocks of_a = problem.scales_of_a(), of_b = problem.scales_of_b(slice);
    scales += has_shrink(problem.op) ? in_blocks(rank, of_a.rows) * of_a.across : 0;
    scales += has_expand(problem.op) ? of_b.down * in_blocks(rank, of_b.columns) : 0;
  }
  return scales * size_bytes(problem.dtype[Role::kAScale]);
}

// Of an x of eight bits, of so many rows that one slice has.
std::int64_t scale_bytes_of_x(const Problem& problem, std::int64_t rows) {
  if (!problem.has_scaled_x()) {
    return 0;
  }
  const ScalesOfRows scales = problem.scales_of_rows();
  return (scales.by_token ? rows : std::min(rows, scales.rows)) * scales.across *
         size_bytes(problem.dtype[Role::kXScale]);
}

// Of an h of eight bits, of one slice: of groups with lanes below the rank of a row alone.
std::int64_t scale_bytes_of_h(const Problem& problem) {
  if (!problem.has_scaled_h()) {
    return 0;
  }
  const ScalesOfRows scales = problem.scales_of_rows();
  std::int64_t count = 0;
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    const std::int32_t adapter = problem.plan.adapter_of_token[static_cast<std::size_t>(token)];
    count += problem.acts(adapter)
                 ? in_blocks(problem.rank[static_cast<std::size_t>(adapter)], scales.columns)
                 : 0;
  }
  return (scales.by_token ? count : std::min<std::int64_t>(count, 1)) *
         size_bytes(problem.dtype[Role::kHScale]);
}

struct Extent {
  std::int64_t columns = 0;  // of y, all slices
  std::int64_t biased = 0;   // ... that have a bias
  std::int64_t slices = 0;   // that the op must compute
};

// A slice of width 0 has an A, but nothing needs it.
Extent extent_of(const Problem& problem) {
  Extent extent;
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    const std::int64_t width = problem.widths[static_cast<std::size_t>(slice)];
    extent.columns += width;
    extent.biased += problem.has_bias(slice) ? width : 0;
    extent.slices += width > 0 ? 1 : 0;
  }
  return extent;
}

// Of y in rows that get zeros.
std::int64_t idle_bytes(const Problem& problem, const Extent& extent, std::int64_t rows) {
  return problem.zeroes_idle_rows()
             ? (problem.tokens - rows) * extent.columns * size_bytes(problem.dtype[Role::kY])
             : 0;
}

// Rows of x that an adapter acts on, of which several rows of a step may read one.
std::int64_t read_rows_of_x(const Problem& problem, std::int64_t rows) {
  if (!problem.shares_x()) {
    return rows;
  }
  std::vector<bool> read(static_cast<std::size_t>(problem.x_rows()), false);
  for (std::int64_t row = 0; row < problem.tokens; ++row) {
    if (problem.acts_on(row)) {
      read[static_cast<std::size_t>(problem.x_row(0, row))] = true;
    }
  }
  return std::count(read.begin(), read.end(), true);
}

void count_activations(const Problem& problem, const Extent& extent, std::int64_t ranks_of_rows,
                       Work& work) {
  const std::int64_t h_bytes = ranks_of_rows * extent.slices * size_bytes(problem.dtype[Role::kH]);
  std::int64_t read = 0;
  if (has_shrink(problem.op)) {
    const std::int64_t of_x = problem.own_inputs() ? extent.slices : 1;
    const std::int64_t rows = read_rows_of_x(problem, work.rows);
    read += of_x * (rows * problem.in_features * size_bytes(problem.dtype[Role::kX]) +
                    scale_bytes_of_x(problem, rows));
    read += problem.shares_x() ? work.rows * std::int64_t{sizeof(std::int32_t)} : 0;
    work.flops += 2 * ranks_of_rows * extent.slices * problem.in_features;
  } else {
    read += h_bytes + extent.slices * scale_bytes_of_h(problem);
  }
  read += problem.has_factors() ? work.rows * size_bytes(problem.dtype[Role::kFactor]) : 0;
  if (has_expand(problem.op)) {
    const std::int64_t y_bytes = work.rows * extent.columns * size_bytes(problem.dtype[Role::kY]);
    work.updated_bytes = problem.add_inputs ? y_bytes : 0;
    read += work.updated_bytes;
    work.written_bytes += y_bytes + idle_bytes(problem, extent, work.rows);
    work.flops += 2 * ranks_of_rows * extent.columns;
  } else {
    work.updated_bytes = problem.adds_to_h() ? h_bytes : 0;
    read += work.updated_bytes;
    work.written_bytes += h_bytes;
  }
  work.bytes = work.weight_bytes + read + work.written_bytes;
}

// A dtype without a peak of its own is charged at the best of all, of eight bits at twice that:
// never a floor that is too high.
double peak_flops_per_s(const Ceilings& ceilings, Dtype dtype) {
  double best = 0;
  for (const Ceilings::Peak& peak : ceilings.peaks) {
    if (peak.dtype == dtype) {
      return peak.flops_per_s;
    }
    best = std::max(best, peak.flops_per_s);
  }
  return size_bytes(dtype) == 1 ? 2 * best : best;
}

}  // namespace

Work count_work(const Problem& problem) {
  const Extent extent = extent_of(problem);
  const auto size = [&](Role role) { return size_bytes(problem.dtype[role]); };
  Work work;
  std::int64_t ranks_of_rows = 0;  // sum over rows of the rank of the row's adapter
  for (std::int64_t group = 0; group < problem.plan.active(); ++group) {
    const auto g = static_cast<std::size_t>(group);
    const auto slot = static_cast<std::size_t>(problem.plan.active_ids[g]);
    const std::int64_t rank = problem.rank[slot];
    if (!problem.acts(problem.plan.active_ids[g]) || extent.slices == 0) {
      continue;
    }
    const std::int64_t rows = problem.plan.group_starts[g + 1] - problem.plan.group_starts[g];
    work.rows += rows;
    ranks_of_rows += rows * rank;
    if (has_shrink(problem.op)) {
      work.weight_bytes += extent.slices * rank * problem.in_features * size(Role::kA);
    }
    if (has_expand(problem.op)) {
      work.weight_bytes +=
          extent.columns * rank * size(Role::kB) + extent.biased * size(Role::kBias);
    }
    work.weight_bytes += scale_bytes(problem, rank);
  }
  count_activations(problem, extent, ranks_of_rows, work);
  return work;
}

std::int64_t bytes_from_memory(const Work& work, CacheMode cache, std::int64_t kept_bytes) {
  if (cache == CacheMode::kCold) {
    return work.bytes - work.written_bytes;  // the last writes may still sit in the cache
  }
  const std::int64_t cold = cache == CacheMode::kWeightsCold ? work.weight_bytes : 0;
  // What the launches share lies in the cache but for what exceeds it. Best is to spare the memory
  // what is read and written back, which it would see twice.
  const std::int64_t shared = work.bytes - cold - work.updated_bytes;
  const std::int64_t exceeding = std::max<std::int64_t>(0, shared - kept_bytes);
  const std::int64_t seen_once = shared - work.updated_bytes;
  return cold + exceeding + std::max<std::int64_t>(0, exceeding - seen_once);
}

Floor floor_of(const Work& work, const Problem& problem, CacheMode cache,
               const Ceilings& ceilings) {
  const auto bytes = static_cast<double>(work.bytes);
  const auto from_memory = static_cast<double>(bytes_from_memory(work, cache, ceilings.kept_bytes));
  const auto distinct_bytes = static_cast<double>(work.bytes - work.updated_bytes);
  const double peak =
      peak_flops_per_s(ceilings, problem.dtype[has_shrink(problem.op) ? Role::kX : Role::kB]);
  const double flops_seconds = peak > 0 ? static_cast<double>(work.flops) / peak : 0;
  const double stream_seconds = read_seconds(ceilings.memory_curve, bytes);
  // A launch that adds to what the launch before wrote touches no activation before that one's end.
  const bool chained = work.updated_bytes > 0 && cache != CacheMode::kCold;
  const double launch_seconds = chained ? ceilings.update_launch_seconds : ceilings.launch_seconds;
  const double cache_bound = cache_seconds(
      ceilings, bytes, chained ? static_cast<double>(work.bytes - work.weight_bytes) : 0);

  const std::pair<const char*, double> terms[] = {
      {"memory", read_seconds(ceilings.memory_curve, from_memory)},
      // Where a disturbed run measured a cache that is slower than the memory, memory counts. What
      // a cache keeps of bytes that all come again is no less than what it keeps when weights do
      // not.
      {"cache",
       std::min(std::max(cache_bound, again_seconds(ceilings, distinct_bytes)), stream_seconds)},
      {"flops", flops_seconds},
      {"launch", launch_seconds}};
  Floor floor;
  floor.stream_seconds = std::max({stream_seconds, flops_seconds, launch_seconds});
  for (const auto& [name, seconds] : terms) {
    if (floor.bound_by.empty() || seconds > floor.seconds) {
      floor.seconds = seconds;
      floor.bound_by = name;
    }
  }
  return floor;
}

}  // namespace lora_bench
