#include <doctest/doctest.h>

#include <cstdint>

#include "ops/auto_choice.h"
#include "ops/auto_tuning.h"
#include "ops/panel_backend.h"
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
  CHECK(family_of(spec, 89) == AutoFamily::kPanel);
  CHECK(name(AutoFamily::kResident) == "resident");
  CHECK(name(AutoFamily::kClustered) == "clustered");
  CHECK(name(AutoFamily::kPanel) == "panel");
}

TEST_CASE("auto: few adapters whose weights all find room are resident, unless tuning says not") {
  Case spec = serving_case();
  spec.batch.decode = 1;
  CHECK(family_of(spec) == AutoFamily::kResident);
  CHECK(family_of(spec, 89) == AutoFamily::kPanel);
  spec.tuning.family = TunedFamily::kClustered;
  CHECK(family_of(spec) == AutoFamily::kClustered);
  spec.tuning.family = TunedFamily::kPanel;
  CHECK(family_of(spec) == AutoFamily::kPanel);
  spec.tuning.family = TunedFamily::kResident;
  CHECK(family_of(spec) == AutoFamily::kResident);
}

TEST_CASE("auto: what cannot be copied 16 bytes at a time, or is half an op, goes to panel") {
  Case spec = serving_case();
  spec.op = Op::kShrink;
  CHECK(family_of(spec) == AutoFamily::kPanel);
  spec = serving_case();
  spec.layer.in_features = spec.layer.x_stride = 4100;
  CHECK(family_of(spec) == AutoFamily::kPanel);
  spec = serving_case();
  spec.layer.widths = {4095, 1025, 1024};
  CHECK(family_of(spec) == AutoFamily::kPanel);
  spec = serving_case();
  spec.layer.y_stride = 6145;
  CHECK(family_of(spec) == AutoFamily::kPanel);
  spec = serving_case();
  spec.adapters.max_rank = 18;
  CHECK(family_of(spec) == AutoFamily::kPanel);
  spec.adapters.max_rank = 20;  // two columns of B are whole vectors, and so are eight
  CHECK(family_of(spec) == AutoFamily::kClustered);
}

// Measured: nine rows of one adapter of rank 192, down, 9.5 us with panels and 15.2 with clusters;
// 32 of four of 256, gate_up, 49 and 56.
TEST_CASE("auto: high ranks go to panels where tiles of eight rows read weights twice") {
  Case spec = serving_case();
  spec.layer.in_features = spec.layer.x_stride = 17920;
  spec.layer.widths = {5120};
  spec.layer.y_stride = 5120;
  spec.adapters.slots = 1;
  spec.adapters.rank.list = {192};
  spec.adapters.max_rank = 192;
  spec.batch.decode = 8;
  CHECK(family_of(spec) != AutoFamily::kPanel);
  spec.batch.decode = 9;
  CHECK(family_of(spec) == AutoFamily::kPanel);
}

TEST_CASE("auto: a dozen adapters of high rank are few, one more are many") {
  Case spec = serving_case();
  spec.skew.kind = Skew::kDistinct;
  spec.adapters.rank.list = {192};
  spec.adapters.max_rank = 192;
  const auto nine_rows_of_each = [&](std::int64_t adapters) {
    spec.adapters.slots = adapters;
    spec.batch.decode = 9 * adapters;
    return family_of(spec);
  };
  CHECK(nine_rows_of_each(12) == AutoFamily::kPanel);
  CHECK(nine_rows_of_each(13) == AutoFamily::kClustered);
}

TEST_CASE("auto: resident that is asked for where it has no room is not launched as clustered") {
  Case spec = serving_case();
  spec.skew.kind = Skew::kDistinct;
  spec.tuning.family = TunedFamily::kResident;
  const Problem problem = problem_of(spec);
  CHECK(auto_reason({}, problem) == AutoReason::kNoRoom);
  CHECK(auto_family({}, problem) == AutoFamily::kPanel);
  CHECK(why_not_tuned({}, problem) ==
        "tuning.family resident: the weights of 64 adapters of rank 16 are more than the shared "
        "memory of clusters that run at once; allowed: clustered, panel");
}

TEST_CASE("auto: knows the tiles of its batch, but not where it is launched for others") {
  Case spec = serving_case();
  const Problem alone = problem_of(spec);
  CHECK(auto_clustered_shape({}, alone).row_tiles == kernels::RowTiles(alone.plan.group_starts));
  CHECK(auto_panel_shape({}, alone, true).row_tiles.known());
  spec.plan.max_slots = spec.adapters.slots;
  const Problem any = problem_of(spec);
  CHECK_FALSE(auto_clustered_shape({}, any).row_tiles.known());
  CHECK_FALSE(auto_panel_shape({}, any, true).row_tiles.known());
}

TEST_CASE("auto: many rows of an adapter go to panels, however many adapters there are") {
  Case spec = serving_case();
  spec.batch.decode = 24 * 64;
  CHECK(family_of(spec) == AutoFamily::kClustered);
  spec.batch.decode = 24 * 64 + 1;
  CHECK(family_of(spec) == AutoFamily::kPanel);
}

TEST_CASE("auto: a dozen rows of each of many large adapters go to panels, of small ones not") {
  Case spec = serving_case();
  spec.batch.decode = 12 * 64;
  CHECK(family_of(spec) == AutoFamily::kClustered);
  spec.adapters.rank.list = {64};
  spec.adapters.max_rank = 64;
  CHECK(family_of(spec) == AutoFamily::kPanel);
  spec.batch.decode = 64;
  CHECK(family_of(spec) == AutoFamily::kClustered);
  spec.adapters.rank.list = {128};
  spec.adapters.max_rank = 128;
  CHECK(family_of(spec) == AutoFamily::kClustered);
  spec.batch.decode = 3 * 64;  // 302 MB of weights
  CHECK(family_of(spec) == AutoFamily::kPanel);
  spec.batch.decode = 12 * 64;
  spec.adapters.rank.list = {192};
  spec.adapters.max_rank = 192;
  CHECK(family_of(spec) == AutoFamily::kClustered);  // weights come less than twice as often
  spec.batch.decode = 20 * 64;
  CHECK(family_of(spec) == AutoFamily::kPanel);
  spec.adapters.rank.list = {264};
  spec.adapters.max_rank = 264;
  CHECK(family_of(spec) == AutoFamily::kClustered);  // panel has no tile for it
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
  const Numerics numerics = panel_numerics(problem_of(serving_case()));
  CHECK(numerics.deterministic);
  CHECK(numerics.batch_invariant);
  CHECK(numerics.shrink_depth == 512 + 3);
  CHECK(numerics.expand_depth == 3 * 16 + 2);
}
