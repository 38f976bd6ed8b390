#include <doctest/doctest.h>

#include <cstdint>

#include "kernels/ordered/ordered_tuning.h"
#include "ops/auto_backend.h"
#include "ops/auto_choice.h"
#include "support/workload_case.h"

using namespace lora_bench;

namespace {

Case serving_case() {
  Case spec = workload_case(64, 64);
  spec.dtype = Dtype::kBf16;
  spec.layer.in_features = spec.layer.x_stride = 4096;
  spec.layer.widths = {4096, 1024, 1024};
  spec.layer.y_stride = 6144;
  spec.adapters.rank.list = {16};
  spec.adapters.max_rank = 16;
  return spec;
}

AutoFamily family_of(const Case& spec, int compute_capability = 90) {
  return auto_family({.compute_capability = compute_capability}, problem_of(spec));
}

}  // namespace

TEST_CASE("auto: a linear op of whole vectors is one launch of clusters where there are clusters") {
  const Case spec = serving_case();
  CHECK(family_of(spec) == AutoFamily::kClustered);
  CHECK(family_of(spec, 100) == AutoFamily::kClustered);
  CHECK(family_of(spec, 89) == AutoFamily::kOrdered);
  CHECK(name(AutoFamily::kClustered) == "clustered");
  CHECK(name(AutoFamily::kOrdered) == "ordered");
}

TEST_CASE("auto: what cannot be copied 16 bytes at a time, or is half an op, goes the plain way") {
  Case spec = serving_case();
  spec.op = Op::kShrink;
  CHECK(family_of(spec) == AutoFamily::kOrdered);
  spec = serving_case();
  spec.layer.in_features = spec.layer.x_stride = 4100;
  CHECK(family_of(spec) == AutoFamily::kOrdered);
  spec = serving_case();
  spec.layer.widths = {4095, 1025, 1024};
  CHECK(family_of(spec) == AutoFamily::kOrdered);
  spec = serving_case();
  spec.layer.y_stride = 6145;
  CHECK(family_of(spec) == AutoFamily::kOrdered);
  spec = serving_case();
  spec.adapters.max_rank = 20;
  CHECK(family_of(spec) == AutoFamily::kOrdered);
}

TEST_CASE("auto: h that is narrow or of fewer parts takes less memory") {
  Case spec = serving_case();
  spec.intermediate = Dtype::kFp32;
  CHECK(auto_clustered_shape({}, problem_of(spec)).hidden_vectors == 3);
  spec.dtype = Dtype::kFp16;
  CHECK(auto_clustered_shape({}, problem_of(spec)).hidden_vectors == 6);
  spec.intermediate = Dtype::kFp16;
  CHECK(auto_clustered_shape({}, problem_of(spec)).hidden_vectors == 1);
}

TEST_CASE("auto: it promises bits that nothing of a batch changes") {
  const Numerics numerics = auto_numerics(problem_of(serving_case()));
  CHECK(numerics.deterministic);
  CHECK(numerics.batch_invariant);
  CHECK(numerics.shrink_depth == 512 + 8);
}

TEST_CASE("ordered: a block a row tile and lane tile; a block a row tile and column tile") {
  const auto shrink = kernels::ordered_shrink_tuning(100, 3, 3, 20);
  CHECK(shrink.lane_tiles == 4);
  CHECK(shrink.blocks == (100 / 16 + 3) * 4);
  const std::int64_t widths[] = {300, 0, 64};
  const auto expand = kernels::ordered_expand_tuning(2, 5, 3, widths);
  CHECK(expand.column_tiles == 3);
  CHECK(expand.blocks == 2 * 3);
  CHECK(kernels::ordered_shrink_tuning(10, 0, 1, 8).blocks == 0);
  CHECK(kernels::ordered_expand_tuning(10, 0, 3, widths).blocks == 0);
}
