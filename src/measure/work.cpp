#include "core/dtype.h"
#include "measure/ceilings.h"
#include "scenario/case.h"

namespace lora_bench {
namespace {

struct Extent {
  std::int64_t columns = 0;  // of y, all slices
  std::int64_t slices = 0;   // that the op must compute
};

// A slice of width 0 has an A, but nothing needs it.
Extent extent_of(const Problem& problem) {
  Extent extent;
  for (const std::int64_t width : problem.widths) {
    extent.columns += width;
    extent.slices += width > 0 ? 1 : 0;
  }
  return extent;
}

void count_activations(const Problem& problem, const Extent& extent, std::int64_t ranks_of_rows,
                       Work& work) {
  const std::int64_t h_bytes = ranks_of_rows * extent.slices * size_bytes(problem.dtype[Role::kH]);
  std::int64_t read = 0;
  if (has_shrink(problem.op)) {
    read += work.rows * problem.in_features * size_bytes(problem.dtype[Role::kX]);
    work.flops += 2 * ranks_of_rows * extent.slices * problem.in_features;
  } else {
    read += h_bytes;
  }
  if (has_expand(problem.op)) {
    const std::int64_t y_bytes = work.rows * extent.columns * size_bytes(problem.dtype[Role::kY]);
    work.updated_bytes = problem.add_inputs ? y_bytes : 0;
    read += work.updated_bytes;
    work.written_bytes += y_bytes;
    work.flops += 2 * ranks_of_rows * extent.columns;
  } else {
    work.written_bytes += h_bytes;
  }
  work.bytes = work.weight_bytes + read + work.written_bytes;
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
    if (rank == 0 || extent.slices == 0) {
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
          extent.columns * (rank * size(Role::kB) + (problem.bias ? size(Role::kBias) : 0));
    }
  }
  count_activations(problem, extent, ranks_of_rows, work);
  return work;
}

}  // namespace lora_bench
