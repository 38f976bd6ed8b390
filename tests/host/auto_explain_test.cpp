#include "ops/auto_tuning.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "kernels/clustered/resident_tuning.h"
#include "support/process.h"
#include "support/workload_case.h"

using namespace lora_bench;
using lora_bench::test::contains;

namespace {

Case decode_case(std::int64_t tokens, std::int64_t slots) {
  Case spec = workload_case(tokens, slots);
  spec.dtype = Dtype::kBf16;
  spec.layer.in_features = spec.layer.x_stride = 4096;
  spec.layer.widths = {4096, 1024, 1024};
  spec.layer.y_stride = 6144;
  spec.adapters.rank.list = {16};
  spec.adapters.max_rank = 16;
  spec.skew.kind = Skew::kDistinct;
  return spec;
}

std::string explained(const Case& spec, const AutoDevice& device = {}) {
  std::string text;
  for (const std::string& line : explain_auto(device, problem_of(spec))) {
    text += line + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("explain: few rows an adapter are one launch of clusters, with the numbers it has") {
  const Problem problem = problem_of(decode_case(64, 64));
  const kernels::ClusteredTuning tuning =
      kernels::clustered_tuning(auto_clustered_shape({}, problem));
  const std::string text = explained(decode_case(64, 64));
  CAPTURE(text);
  CHECK(contains(text, "clustered, few rows an adapter: 64 tokens over 64 adapters\n"));
  CHECK(contains(text, fmt::format("grid {} x {}, ", tuning.cluster, tuning.tiles)));
  CHECK(contains(text, fmt::format("{} warps a block", tuning.warps)));
  CHECK(contains(text, "kB of workspace"));
}

TEST_CASE("explain: one row may be a launch of clusters that have all weights before it begins") {
  const kernels::ResidentTuning tuning =
      kernels::resident_tuning(auto_clustered_shape({}, problem_of(decode_case(1, 1))));
  Case spec = decode_case(1, 1);
  const std::string text = explained(spec);
  CAPTURE(text);
  CHECK(contains(text, "resident, few rows an adapter: 1 token over 1 adapter\n"));
  CHECK(contains(text, fmt::format("grid {} x 1 x {}, ", tuning.cluster, tuning.groups)));
  CHECK(contains(text, "all weights in shared memory before it begins"));
  spec.tuning = tuning_of({.family = AutoFamily::kClustered});
  CHECK(contains(explained(spec), "clustered, as tuning says: family: clustered\n"));
  CHECK_FALSE(contains(explained(spec), "all weights in shared memory"));
}

TEST_CASE("explain: many rows an adapter are panels, with the tiles of both halves") {
  Case spec = decode_case(0, 8);
  spec.batch.prefill = {2048};
  const kernels::PanelShape shape = auto_panel_shape({}, problem_of(spec), true);
  const kernels::PanelShrinkTuning shrink = kernels::panel_shrink_tuning(shape);
  const auto& tile = kernels::kPanelShrinkTiles[static_cast<std::size_t>(shrink.tile)];
  const kernels::PanelExpandTuning expand =
      kernels::panel_expand_tuning(shape, spec.layer.widths.data());
  const std::string text = explained(spec);
  CAPTURE(text);
  CHECK(contains(text, "panel, many rows an adapter: 2048 tokens over 1 adapter\n"));
  CHECK(contains(text, fmt::format("shrink: {} blocks", shrink.blocks)));
  CHECK(contains(text, fmt::format("tiles of {} rows x {} lanes", tile.rows, tile.lanes)));
  CHECK(contains(text, fmt::format("{} chunks that share {} column tiles", expand.chunks,
                                   expand.column_tiles)));
  CHECK(contains(text, "2 linked launches; "));
}

TEST_CASE("explain: a cluster that adds the chains of shrink is said, with all warps of a block") {
  Case spec = decode_case(0, 1);
  spec.batch.prefill = {256};
  spec.layer.in_features = spec.layer.x_stride = 14336;
  spec.layer.widths = {4096};
  spec.layer.y_stride = 4096;
  spec.adapters.rank.list = {64};
  spec.adapters.max_rank = 64;
  const std::string text = explained(spec);
  CAPTURE(text);
  CHECK(contains(text, "shrink: 64 blocks of 8 warps, tiles of 32 rows x 64 lanes"));
  CHECK(contains(text, "split 8, a cluster that adds its chains; h in 1 part, 8 stages"));
  CHECK_FALSE(contains(explained(spec, {.compute_capability = 80}), "a cluster that adds"));
}

TEST_CASE("explain: products of four warps together are said") {
  Case spec = decode_case(0, 4);
  spec.batch.prefill = {1024, 1024, 1024, 1024};
  spec.adapters.rank.list = {64};
  spec.adapters.max_rank = 64;
  const std::string text = explained(spec);
  CAPTURE(text);
  CHECK(contains(text, "blocks of 12 warps, tiles of 128 rows x "));
  CHECK(contains(text, ", four warps multiply together; h in 4 parts"));
  CHECK_FALSE(contains(explained(spec, {.groups = false}), "four warps"));
}

TEST_CASE("explain: warps that bring what others multiply are said, with what the launch takes") {
  Case spec = decode_case(0, 4);
  spec.batch.prefill = {1024, 1024, 1024, 1024};
  const auto expand_of = [&](std::int64_t rank, const AutoDevice& device) {
    spec.adapters.rank.list = {rank};
    spec.adapters.max_rank = rank;
    const std::string text = explained(spec, device);
    return text.substr(text.find("expand: "));
  };
  const std::string apart = expand_of(128, {});
  CAPTURE(apart);
  CHECK(contains(apart, "blocks of 8 warps, tiles of 64 rows x 64 columns, up to 128 lanes"));
  CHECK(contains(apart, ", four warps multiply together what four others bring; 3 stages, 112 kB"));
  const std::string held = expand_of(256, {});
  CAPTURE(held);
  CHECK(contains(held, "blocks of 12 warps, tiles of 64 rows x 64 columns, up to 256 lanes"));
  CHECK(contains(held, "together what four others bring, h held; 8 stages, 230 kB"));
  spec.dtype = Dtype::kFp16;  // whose products of expand are those of one warp
  CHECK_FALSE(contains(expand_of(128, {}), "four"));
  CHECK_FALSE(auto_panel_shape({}, problem_of(spec), true).expand_groups);
  spec.dtype = Dtype::kBf16;
  CHECK(auto_panel_shape({}, problem_of(spec), true).expand_groups);
  spec.intermediate = Dtype::kBf16;
  const std::string rounded = expand_of(256, {});
  CAPTURE(rounded);
  CHECK(contains(rounded, "together what four others bring, h held; 12 stages, 230 kB"));
  spec.intermediate = Dtype::kFp32;
  const std::string alike = expand_of(256, {.groups = false});
  CAPTURE(alike);
  CHECK(contains(alike, "blocks of 8 warps, tiles of 64 rows x 64 columns, up to 256 lanes"));
  CHECK(contains(alike, " column tiles; 3 stages, 194 kB"));
}

TEST_CASE("explain: each reason for panels is said") {
  CHECK(contains(explained(decode_case(64, 64), {.compute_capability = 89}),
                 "panel, compute capability 8.9 has no clusters"));
  Case spec = decode_case(64, 64);
  spec.op = Op::kShrink;
  CHECK(contains(explained(spec), "panel, op shrink is no linear op"));
  CHECK(contains(explained(spec), "h: 12 blocks add its parts"));
  spec = decode_case(64, 64);
  spec.layer.x_stride = 4097;
  CHECK(contains(explained(spec),
                 "panel, rows of x or y that are no multiple of 16 bytes, or columns of B of 8"));
  CHECK(contains(explained(spec), "tiles of 16 rows x 8 lanes, read an element at a time"));
  CHECK_FALSE(contains(explained(spec), "written an element at a time"));
  spec = decode_case(64, 64);
  spec.adapters.max_rank = 2048;
  CHECK(contains(explained(spec), "3 slices of rank 2048 take more shared memory"));
}

TEST_CASE("explain: a tuning is what is explained, or why it cannot be") {
  Case spec = decode_case(64, 64);
  spec.tuning = tuning_of({.family = AutoFamily::kPanel, .split = 2});
  CHECK(contains(explained(spec), "panel, as tuning says: family: panel, split: 2\n"));
  CHECK(contains(explained(spec), "x split 2; "));
  spec.tuning = tuning_of({.family = AutoFamily::kClustered, .cluster = 4, .warps = 6});
  CHECK(contains(explained(spec), "grid 4 x 64, "));
  CHECK(contains(explained(spec), "6 warps a block"));
  CHECK(contains(explained(spec, {.compute_capability = 80}),
                 "tuning.family clustered: compute capability 8.0 has no clusters"));
}

TEST_CASE("explain: what auto does not take, and a batch without adapters, are said") {
  Case spec = decode_case(64, 64);
  spec.dtype = Dtype::kFp32;
  CHECK(explained(spec) == "fp32 operands do not go to the tensor cores: bf16, fp16\n");
  spec = decode_case(64, 64);
  spec.no_adapter = 1;
  CHECK(explained(spec) == "no launch: no token has an adapter\n");
}
