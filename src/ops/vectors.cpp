#include "ops/vectors.h"

namespace lora_bench {
namespace {

constexpr std::int64_t kVectorBytes = 16;

bool whole(std::int64_t bytes) { return bytes % kVectorBytes == 0; }

bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kVectorBytes == 0;
}

}  // namespace

bool reads_vectors(const kernels::ShrinkParams& params, std::int64_t element_bytes) {
  bool all = aligned(params.x) && whole(params.x_stride * element_bytes) &&
             whole(params.in_features * element_bytes);
  for (int slice = 0; slice < params.slices; ++slice) {
    all = all && aligned(params.a[slice]);
  }
  return all;
}

bool reads_vectors(const kernels::ExpandParams& params, std::int64_t element_bytes,
                   std::int64_t h_bytes) {
  bool all = aligned(params.h) && whole(params.max_rank * h_bytes) &&
             whole(params.max_rank * element_bytes);
  for (int slice = 0; slice < params.slices; ++slice) {
    all = all && aligned(params.b[slice]);
  }
  return all;
}

bool has_vector_y(const kernels::ExpandParams& params, std::int64_t element_bytes) {
  bool all = aligned(params.y) && whole(params.y_stride * element_bytes) &&
             whole(params.first_column * element_bytes);
  for (int slice = 0; slice < params.slices; ++slice) {
    all = all && whole(params.width[slice] * element_bytes);
  }
  return all;
}

bool copies_in_bulk(const kernels::ShrinkParams& shrink, const kernels::ExpandParams& expand,
                    std::int64_t element_bytes) {
  bool all = reads_vectors(shrink, element_bytes) && whole(2 * expand.max_rank * element_bytes);
  for (int slice = 0; slice < expand.slices; ++slice) {
    all = all && aligned(expand.b[slice]);
  }
  return all && has_vector_y(expand, element_bytes);
}

bool expands_in_vectors(const kernels::ExpandParams& params, std::int64_t element_bytes) {
  bool all = has_vector_y(params, element_bytes) && whole(2 * params.max_rank * element_bytes);
  for (int slice = 0; slice < params.slices; ++slice) {
    // A bias has rows as long as the slices of y are wide.
    all = all && aligned(params.b[slice]) && aligned(params.bias[slice]);
  }
  return all;
}

}  // namespace lora_bench
