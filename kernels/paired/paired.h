#pragma once

#include <cuda_runtime_api.h>

#include "kernels/paired/paired_tuning.h"
#include "kernels/params.h"

namespace lora_bench::kernels {

// h between the two kernels: sums over parts of K, not scaled, [parts][slices][tokens][max_rank].
// A plain fp32 h is one part.
struct PairedHidden {
  float* sums = nullptr;
  const float* scale = nullptr;  // [slots], what shrink would have applied; null: nothing
  std::int64_t elements = 0;     // of one part
  std::int32_t parts = 1;
};

// Only lanes below the adapter's rank are written. `vectors`: every row of x and A starts on 16
// bytes. x and A are kBf16 or kFp16. Needs compute capability 8.0.
[[nodiscard]] cudaError_t launch_paired_shrink(Number number, const ShrinkParams& params,
                                               const PairedShrinkTuning& tuning,
                                               const PairedHidden& hidden, bool vectors,
                                               cudaStream_t stream);

// `vectors`: every row of h, of the parts and of B starts on 16 bytes; `vector_y`: every slice of
// every row of y too.
struct PairedExpandAccess {
  bool vectors = false;
  bool vector_y = false;
  bool linked = false;  // directly after the shrink of the same step: starts while that still runs
};

// h from `hidden`, rounded to `intermediate`, when hidden.sums is given, else from params.h.
[[nodiscard]] cudaError_t launch_paired_expand(Number number, Number intermediate,
                                               const ExpandParams& params,
                                               const PairedExpandTuning& tuning,
                                               const PairedHidden& hidden,
                                               const PairedExpandAccess& access,
                                               cudaStream_t stream);

}  // namespace lora_bench::kernels
