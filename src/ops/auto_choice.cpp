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

kernels::PanelShape auto_panel_shape(const AutoDevice& device, const Problem& problem,
                                     bool vectors) {
  kernels::PanelShape shape;
  shape.tokens = problem.tokens;
  shape.active = problem.plan.active();
  shape.slices = problem.slices();
  shape.max_rank = problem.max_rank;
  shape.in_features = problem.in_features;
  shape.multiprocessors = device.multiprocessors;
  shape.shared_bytes = device.shared_bytes;
  shape.multiprocessor_bytes = device.multiprocessor_bytes;
  shape.vectors = vectors;
  return shape;
}

std::int64_t auto_workspace_bytes(const AutoDevice& device, const Problem& problem) {
  return has_shrink(problem.op) && problem.plan.active() > 0
             ? kernels::panel_workspace_elements(auto_panel_shape(device, problem, true)) *
                   static_cast<std::int64_t>(sizeof(float))
             : 0;
}

AutoReason auto_reason(const AutoDevice& device, const Problem& problem) {
  if (device.compute_capability < 90) {
    return AutoReason::kNoClusters;
  }
  if (problem.op != Op::kLinear) {
    return AutoReason::kNotLinear;
  }
  if (!whole_vectors(problem)) {
    return AutoReason::kNoVectors;
  }
  if (!few_rows(problem)) {
    return AutoReason::kManyRows;
  }
  const kernels::ClusteredShape shape = auto_clustered_shape(device, problem);
  const bool takes = kernels::clustered_takes(shape) && kernels::clustered_tuning(shape).fits;
  return takes ? AutoReason::kFewRows : AutoReason::kNoRoom;
}

AutoFamily auto_family(const AutoDevice& device, const Problem& problem) {
  return auto_reason(device, problem) == AutoReason::kFewRows ? AutoFamily::kClustered
                                                              : AutoFamily::kPanel;
}

}  // namespace lora_bench
