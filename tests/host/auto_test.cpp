#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "ops/auto_choice.h"
#include "ops/auto_tuning.h"
#include "ops/backends.h"
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

// What a linear op of one packed layer is launched as where each adapter has `rows` rows, and the
// first of them as many more as rows are left.
AutoFamily family_of_each(std::int64_t in_features, const std::vector<std::int64_t>& widths,
                          std::int64_t rank, std::int64_t adapters, std::int64_t rows,
                          std::int64_t left = 0) {
  Case spec = serving_case();
  spec.skew.kind = Skew::kDistinct;
  spec.layer.in_features = spec.layer.x_stride = in_features;
  spec.layer.widths = widths;
  spec.layer.y_stride = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
  spec.adapters.rank.list = {rank};
  spec.adapters.max_rank = rank;
  spec.adapters.slots = adapters;
  spec.batch.decode = rows * adapters + left;
  return family_of(spec);
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
  spec.tuning = tuning_of({.family = AutoFamily::kClustered});
  CHECK(family_of(spec) == AutoFamily::kClustered);
  spec.tuning = tuning_of({.family = AutoFamily::kPanel});
  CHECK(family_of(spec) == AutoFamily::kPanel);
  spec.tuning = tuning_of({.family = AutoFamily::kResident});
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
  spec.tuning = tuning_of({.family = AutoFamily::kResident});
  const Problem problem = problem_of(spec);
  CHECK(auto_reason({}, problem) == AutoReason::kNoRoom);
  CHECK(auto_family({}, problem) == AutoFamily::kPanel);
  CHECK(why_not_tuned({}, problem) ==
        "tuning.family resident: the weights of 64 adapters of rank 16 are more than the shared "
        "memory of clusters that run at once; allowed: clustered, panel");
}

TEST_CASE(
    "auto: weights of eight bits that clusters have no room for go to panel, if it has them") {
  Case spec = serving_case();
  spec.weights.dtype = Dtype::kE4m3;
  spec.weights.scale = WeightsScale::kChannel;
  spec.adapters.rank.list = {128};
  spec.adapters.max_rank = 128;
  spec.layer.widths.assign(16, 64);
  spec.layer.y_stride = 1024;
  const Problem problem = problem_of(spec);
  CHECK(auto_reason({}, problem) == AutoReason::kNoRoom);
  CHECK(why_not_tuned({}, problem).empty());
  CHECK(auto_family({}, problem) == AutoFamily::kPanel);
  CHECK(auto_workspace_bytes({}, problem, {}) > 0);
  spec.intermediate = Dtype::kBf16;
  spec.adapters.rank.list = {256};
  spec.adapters.max_rank = 256;
  CHECK(auto_reason({}, problem_of(spec)) == AutoReason::kNoRoom);
  CHECK(why_not_tuned({}, problem_of(spec))
            .starts_with("auto takes no such weights of eight bits: "));
}

TEST_CASE("auto: weights of eight bits go to clusters, and to panel where rows are many") {
  Case spec = serving_case();
  spec.weights.dtype = Dtype::kE4m3;
  spec.weights.scale = WeightsScale::kChannel;
  CHECK(auto_reason({}, problem_of(spec)) == AutoReason::kFewRows);
  CHECK(auto_workspace_bytes({}, problem_of(spec), spec.tuning) == 0);
  CHECK(why_not_tuned({}, problem_of(spec)).empty());
  CHECK(family_of(spec) == AutoFamily::kClustered);
  spec.batch.decode = 1;
  CHECK(family_of(spec) == AutoFamily::kResident);
  spec.tuning = tuning_of({.family = AutoFamily::kClustered});
  CHECK(family_of(spec) == AutoFamily::kClustered);
  spec.tuning = {};
  spec.batch.prefill = {2048};
  spec.skew.kind = Skew::kIdentical;
  CHECK(family_of(spec) == AutoFamily::kPanel);
  CHECK(auto_workspace_bytes({}, problem_of(spec), spec.tuning) > 0);
  Case narrow = spec;
  narrow.intermediate = Dtype::kBf16;
  CHECK(auto_reason({}, problem_of(narrow)) == AutoReason::kEightBits);
  CHECK(family_of(narrow) == AutoFamily::kClustered);
  narrow = spec;
  narrow.adapters.rank.list = {136};
  CHECK(auto_reason({}, problem_of(narrow)) == AutoReason::kEightBits);
  const auto why_not = [](const Case& other) { return why_not_tuned({}, problem_of(other)); };
  Case other = spec;
  other.tuning = tuning_of({.family = AutoFamily::kResident});
  CHECK(why_not(other) ==
        "tuning.family resident: the weights of 2 adapters of rank 16 are more than the shared "
        "memory of clusters that run at once; allowed: clustered, panel");
  other.tuning = tuning_of({.family = AutoFamily::kPanel});
  CHECK(why_not(other).empty());
  other.intermediate = Dtype::kBf16;
  CHECK(
      why_not(other) ==
      "auto takes no such weights of eight bits: of weights of eight bits panel takes ranks up to "
      "128, a max_rank that is a multiple of 8, and an fp32 h");
  other = spec;
  other.weights.scale = WeightsScale::kBlock;
  other.weights.block = {128, 128};
  CHECK(why_not(other) ==
        "auto takes no such weights of eight bits: scales of blocks; allowed: tensor, channel");
  other = spec;
  other.layer.in_features = other.layer.x_stride = 4104;  // 16 bytes of x, and not of A
  CHECK(why_not(other) ==
        "auto takes no such weights of eight bits: rows of x, A or y that are no multiple of 16 "
        "bytes, or columns of B of 4");
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

// Nine rows are two tiles, so 64 adapters bring their weights twice, 71 MB and more: where panels
// have a tile for the lanes of a slice.
TEST_CASE("auto: weights that come twice go to panels where lanes fill their tiles") {
  const auto one_slice = [](std::int64_t rank) {
    return family_of_each(16384, {1024}, rank, 64, 9);
  };
  CHECK(one_slice(16) == AutoFamily::kClustered);
  CHECK(one_slice(24) == AutoFamily::kPanel);
  CHECK(one_slice(28) == AutoFamily::kClustered);  // no multiple of eight
  CHECK(one_slice(32) == AutoFamily::kPanel);
  const auto two_slices = [](std::int64_t rank) {
    return family_of_each(16384, {512, 512}, rank, 64, 9);
  };
  CHECK(two_slices(24) == AutoFamily::kClustered);
  CHECK(two_slices(32) == AutoFamily::kPanel);
  CHECK(family_of_each(4096, {4096}, 256, 16, 17) == AutoFamily::kPanel);
  CHECK(family_of_each(4096, {4096}, 264, 16, 17) == AutoFamily::kClustered);
}

// In MB. Rank 128, a layer of 4096 x 4096: 2.1 an adapter, twice of seven 29.4 and of eight 33.6.
// Rank 192 of up to twelve adapters, 2048 x 2048: 1.57, twice of three 9.4 and of four 12.6.
TEST_CASE("auto: weights that come twice stay with clusters while they are few") {
  CHECK(family_of_each(4096, {4096}, 128, 7, 9) == AutoFamily::kClustered);
  CHECK(family_of_each(4096, {4096}, 128, 8, 9) == AutoFamily::kPanel);
  CHECK(family_of_each(2048, {2048}, 192, 3, 9) == AutoFamily::kResident);
  CHECK(family_of_each(2048, {2048}, 192, 4, 9) == AutoFamily::kPanel);
}

// Weights in KB an adapter, w, and its rows of x and, twice, of y, r: tiles of eight rows bring
// 2 w + r where panels bring w + r.
TEST_CASE("auto: how much more tiles of eight rows bring decides") {
  // w = 836, r = 332: 1.72 times as much, which 2 w alone were not.
  CHECK(family_of_each(16384, {1024}, 24, 64, 9) == AutoFamily::kPanel);
  // w = 442, r = 313: 1.59 times; were y not read and written, 1.73.
  CHECK(family_of_each(1024, {8192}, 24, 64, 9) == AutoFamily::kClustered);
  // High ranks of few adapters: w = 3146, 12583 of four; two of them in two tiles are 1.47 times
  // as much, and one 1.23.
  CHECK(family_of_each(4096, {4096}, 192, 4, 8, 2) == AutoFamily::kPanel);
  CHECK(family_of_each(4096, {4096}, 192, 4, 8, 1) == AutoFamily::kClustered);
  // Of many: half of them in three tiles and half in two, w = 3146, r = 406: 2.3 times as much.
  CHECK(family_of_each(4096, {4096}, 192, 16, 16, 8) == AutoFamily::kPanel);
}

// Rank 64, 8192 x 8192: 2.1 MB an adapter, 199.2 of 95 and 201.3 of 96. Rank 80, 5000 x 5000, of
// 125 adapters: 200 to the byte.
TEST_CASE("auto: large weights and some rows of each go to panels though none come twice") {
  CHECK(family_of_each(8192, {8192}, 64, 95, 3) == AutoFamily::kClustered);
  CHECK(family_of_each(8192, {8192}, 64, 96, 3) == AutoFamily::kPanel);
  CHECK(family_of_each(5000, {5000}, 80, 125, 3) == AutoFamily::kClustered);
  CHECK(family_of_each(5000, {5000}, 80, 126, 3) == AutoFamily::kPanel);
  CHECK(family_of_each(8192, {8192}, 64, 96, 2, 76) == AutoFamily::kClustered);  // 268 rows
  CHECK(family_of_each(8192, {8192}, 64, 96, 2, 77) == AutoFamily::kPanel);      // 2.8 of each
  CHECK(family_of_each(8192, {8192}, 56, 128, 3) == AutoFamily::kClustered);
}

TEST_CASE("auto: rows of x that 32 bits cannot find in 16 bytes have no grouped tile") {
  Problem problem = problem_of(serving_case());
  problem.tokens = std::int64_t{1} << 20;
  problem.x_stride = (std::int64_t{1} << 15) - 8;
  CHECK(auto_panel_shape({}, problem, true).groups);
  problem.x_stride += 8;
  CHECK_FALSE(auto_panel_shape({}, problem, true).groups);
}

TEST_CASE("auto: workspace is for the parts of h that a shrink leaves, if any row has an adapter") {
  Case spec = serving_case();
  spec.adapters.slots = 1;
  spec.batch.decode = 2048;
  const auto bytes = [&] { return auto_workspace_bytes({}, problem_of(spec), {}); };
  const Problem problem = problem_of(spec);
  const int levels = auto_shrink_tuning({}, problem, {}, true).levels;
  CHECK(kernels::panel_parts(levels) > 1);
  CHECK(bytes() == kernels::panel_parts(levels) * (3 * 2048 * 16 + 1056) * 4);
  spec.no_adapter = 1;
  CHECK(bytes() == 0);
  spec.no_adapter = 0;
  spec.op = Op::kExpand;
  CHECK(bytes() == 0);
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
