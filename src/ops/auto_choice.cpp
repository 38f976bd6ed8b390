#include "ops/auto_choice.h"

#include <algorithm>

namespace lora_bench {
namespace {

// Whether 16 bytes can be copied at a time wherever the operands begin on 16 bytes.
bool whole_vectors(const Problem& problem) {
  constexpr std::int64_t kElements = 8;
  const auto whole = [](std::int64_t size) { return size % kElements == 0; };
  return size_bytes(problem.dtype) == 2 && whole(problem.in_features) && whole(problem.x_stride) &&
         whole(problem.y_stride) && whole(problem.offset_start) && whole(problem.max_rank) &&
         std::all_of(problem.widths.begin(), problem.widths.end(), whole);
}

// A tile of `clustered` has 8 rows: more of an adapter read its weights from the L2 again and
// again, which `panel` does not. Measured: 16 rows an adapter are better there, 256 are not.
bool few_rows(const Problem& problem) {
  constexpr std::int64_t kRowsOfAnAdapter = 24;
  return problem.tokens <= kRowsOfAnAdapter * problem.plan.active();
}

}  // namespace

std::string_view name(AutoFamily family) {
  switch (family) {
    case AutoFamily::kClustered:
      return "clustered";
    case AutoFamily::kPanel:
      break;
  }
  return "panel";
}

kernels::ClusteredShape auto_clustered_shape(const AutoDevice& device, const Problem& problem) {
  kernels::ClusteredShape shape;
  shape.tokens = problem.tokens;
  shape.active = problem.plan.active();
  shape.slices = problem.slices();
  shape.max_rank = problem.max_rank;
  shape.in_features = problem.in_features;
  for (const std::int64_t width : problem.widths) {
    shape.columns += width;
  }
  const bool wide = problem.intermediate == Dtype::kFp32;
  const std::int64_t parts = problem.dtype == Dtype::kBf16 ? 3 : 6;
  shape.hidden_vectors = wide ? parts : 1;
  shape.multiprocessors = device.multiprocessors;
  shape.shared_bytes = device.shared_bytes;
  return shape;
}

AutoFamily auto_family(const AutoDevice& device, const Problem& problem) {
  if (device.compute_capability < 90 || problem.op != Op::kLinear || !whole_vectors(problem) ||
      !few_rows(problem)) {
    return AutoFamily::kPanel;
  }
  const kernels::ClusteredShape shape = auto_clustered_shape(device, problem);
  const bool takes = kernels::clustered_takes(shape) && kernels::clustered_tuning(shape).fits;
  return takes ? AutoFamily::kClustered : AutoFamily::kPanel;
}

}  // namespace lora_bench
