#include "ops/auto_tuning.h"

#include <doctest/doctest.h>

#include <set>
#include <stdexcept>

#include "core/error.h"
#include "core/random.h"
#include "run/describe.h"
#include "scenario/scenario.h"
#include "support/process.h"
#include "support/workload_case.h"

using namespace lora_bench;
using lora_bench::test::contains;

namespace {

Case tuned_case(std::int64_t tokens, const Tuning& tuning) {
  Case spec = workload_case(tokens, 16);
  spec.dtype = Dtype::kBf16;
  spec.layer.in_features = spec.layer.x_stride = 4096;
  spec.layer.widths = {4096, 1024, 1024};
  spec.layer.y_stride = 6144;
  spec.adapters.rank.list = {32};
  spec.adapters.max_rank = 32;
  spec.tuning = tuning;
  return spec;
}

const AutoKnobs kClusters{.family = AutoFamily::kClustered};
const AutoKnobs kPanels{.family = AutoFamily::kPanel};

template <typename Change>
Tuning with(AutoKnobs knobs, Change change) {
  change(knobs);
  return tuning_of(knobs);
}

std::string why_not(const Case& spec, const AutoDevice& device = {}) {
  return why_not_tuned(device, problem_of(spec));
}

// Numbers that a tuning of the family may have, drawn.
AutoKnobs drawn_knobs(std::uint64_t index) {
  std::uint64_t drawn = 0;
  const auto one_of = [&](const auto& values) {
    return values.begin()[lora_bench::random_below(17, index, drawn++, values.size())];
  };
  using Numbers = std::initializer_list<std::int64_t>;
  if (index % 2 == 0) {
    AutoKnobs tuning = kClusters;
    tuning.cluster = one_of(Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 16});
    tuning.groups = one_of(Numbers{0, 0, 1, 2, 5, 8});
    tuning.warps = one_of(Numbers{0, 2, 3, 4, 6, 8, 12, 16});
    tuning.slots = one_of(Numbers{0, 1, 2, 3, 4});
    tuning.blocks = one_of(Numbers{0, 1, 2});
    return tuning;
  }
  AutoKnobs tuning = kPanels;
  tuning.split = one_of(Numbers{0, 1, 2, 4, 8});
  tuning.parts = one_of(Numbers{0, 8});
  tuning.chunks = one_of(Numbers{0, 1, 3, 7, 48, 96, 200});
  if (index % 3 > 0) {
    const kernels::PanelShrinkTile tile = one_of(kernels::kPanelShrinkTiles);
    tuning.shrink_tile = tile_name(tile);
    if (tile.joined) {
      tuning.split = tuning.split == 8 ? 8 : 0;
      tuning.parts = 0;
    }
    if (tile.grouped) {
      tuning.split = tuning.split == 8 ? 4 : tuning.split;
      tuning.parts = 0;
    }
    tuning.expand_tile = tile_name(one_of(kernels::kPanelExpandTiles));
  }
  return tuning;
}

std::int64_t said(std::int64_t value, std::int64_t got) { return value == 0 ? got : value; }

}  // namespace

TEST_CASE("tuning: what is taken is launched as it says, within the memory of a block") {
  int taken = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Problem problem =
        problem_of(tuned_case(1 + static_cast<std::int64_t>(i % 700), tuning_of(drawn_knobs(i))));
    const AutoKnobs tuning = knobs_of(problem.tuning);
    REQUIRE_FALSE(tuning_rules().fault(problem.tuning));
    if (!why_not_tuned({}, problem).empty()) {
      continue;
    }
    ++taken;
    CAPTURE(tuning_text(problem.tuning));
    const AutoDevice device;
    if (tuning.family == AutoFamily::kClustered) {
      CHECK(auto_family(device, problem) == AutoFamily::kClustered);
      const kernels::ClusteredTuning got = auto_clustered_tuning(device, problem);
      CHECK(got.fits);
      CHECK(got.cluster == said(tuning.cluster, got.cluster));
      CHECK(got.groups == said(tuning.groups, got.groups));
      CHECK(got.warps == said(tuning.warps, got.warps));
      CHECK(got.slots == said(tuning.slots, got.slots));
      CHECK(got.shared_bytes <= device.shared_bytes / said(tuning.blocks, 1));
      continue;
    }
    CHECK(auto_family(device, problem) == AutoFamily::kPanel);
    const kernels::PanelShrinkTuning shrink =
        auto_shrink_tuning(device, problem, problem.tuning, true);
    const auto& lanes = kernels::kPanelShrinkTiles[static_cast<std::size_t>(shrink.tile)];
    CHECK((tuning.shrink_tile.empty() || tile_name(lanes) == tuning.shrink_tile));
    CHECK(shrink.split == said(tuning.split, shrink.split));
    CHECK(kernels::panel_parts(shrink.levels) ==
          said(tuning.parts, kernels::panel_parts(shrink.levels)));
    CHECK(shrink.shared_bytes <= device.shared_bytes);
    CHECK(auto_workspace_bytes(device, problem, problem.tuning) >=
          4 * kernels::panel_parts(shrink.levels) * 3 * problem.tokens * 32);
    const kernels::PanelExpandTuning expand =
        auto_expand_tuning(device, problem, problem.tuning, true);
    const auto& columns = kernels::kPanelExpandTiles[static_cast<std::size_t>(expand.tile)];
    CHECK((tuning.expand_tile.empty() || tile_name(columns) == tuning.expand_tile));
    CHECK(expand.chunks == said(tuning.chunks, expand.chunks));
    CHECK(expand.blocks % expand.chunks == 0);
  }
  CHECK(taken > 800);
}

TEST_CASE("tuning: the numbers that auto chooses, said, are the same launch") {
  for (std::int64_t tokens = 1; tokens < 3000; tokens += 1 + tokens / 7) {
    const Problem problem = problem_of(tuned_case(tokens, {}));
    const AutoDevice device;
    Problem told = problem;
    const kernels::ClusteredTuning clusters = auto_clustered_tuning(device, problem);
    told.tuning = with(kClusters, [&](AutoKnobs& t) {
      t.cluster = clusters.cluster, t.warps = clusters.warps, t.slots = clusters.slots;
    });
    CAPTURE(tokens);
    CHECK(auto_clustered_tuning(device, told) == clusters);

    const kernels::PanelShrinkTuning shrink = auto_shrink_tuning(device, problem, {}, true);
    const kernels::PanelExpandTuning expand = auto_expand_tuning(device, problem, {}, true);
    AutoKnobs said_panels = kPanels;
    said_panels.shrink_tile =
        tile_name(kernels::kPanelShrinkTiles[static_cast<std::size_t>(shrink.tile)]);
    said_panels.split = shrink.split;
    said_panels.parts = kernels::panel_parts(shrink.levels);
    said_panels.expand_tile =
        tile_name(kernels::kPanelExpandTiles[static_cast<std::size_t>(expand.tile)]);
    said_panels.chunks = expand.chunks;
    const Tuning panels = tuning_of(said_panels);
    CHECK(auto_shrink_tuning(device, problem, panels, true) == shrink);
    CHECK(auto_expand_tuning(device, problem, panels, true) == expand);
    CHECK(auto_workspace_bytes(device, problem, panels) ==
          auto_workspace_bytes(device, problem, {}));
  }
}

TEST_CASE("tuning: what a device cannot launch is a sentence with what is allowed") {
  CHECK(contains(why_not(tuned_case(64, tuning_of(kClusters)), {.compute_capability = 80}),
                 "compute capability 8.0 has no clusters of blocks; allowed: panel"));
  Case spec = tuned_case(64, tuning_of(kClusters));
  spec.op = Op::kShrink;
  CHECK(contains(why_not(spec), "op shrink is no linear op; allowed: panel"));
  const Tuning large = with(kClusters, [](AutoKnobs& t) { t.warps = 16, t.slots = 3; });
  CHECK(contains(
      why_not(tuned_case(64, large)),
      "tuning {family: clustered, warps: 16, slots: 3}: 16 warps with 3 slots each take "));
  CHECK(contains(why_not(tuned_case(64, large)), "allowed: 232 kB"));
  const Tuning small = with(kPanels, [](AutoKnobs& t) { t.expand_tile = "64x128x16"; });
  CHECK(contains(why_not(tuned_case(640, small)), "allowed: tiles of 32 lanes or more"));
  const Tuning many = with(kPanels, [](AutoKnobs& t) { t.chunks = 65536; });
  CHECK(contains(why_not(tuned_case(640, many)), "tuning.chunks 65536: allowed: 1 to 96"));
  const Tuning joined = with(kPanels, [](AutoKnobs& t) { t.shrink_tile = "32x64-joined"; });
  CHECK(why_not(tuned_case(640, joined)).empty());
  CHECK(contains(why_not(tuned_case(640, joined), {.compute_capability = 80}),
                 "tuning.shrink_tile 32x64-joined: compute capability 8.0 has no clusters"));
  const Tuning split = with(kPanels, [](AutoKnobs& t) { t.split = 2; });
  spec = tuned_case(640, split);
  spec.layer.x_stride = 4097;
  CHECK(contains(why_not(spec), "rows of x or A are no multiple of 16 bytes"));
  spec = tuned_case(640, many);
  spec.adapters.max_rank = 260;
  CHECK(contains(why_not(spec), "rank 260 or rows of y have no tile"));
  const Tuning grouped = with(kPanels, [](AutoKnobs& t) { t.shrink_tile = "128x96-grouped"; });
  CHECK(why_not(tuned_case(640, grouped)).empty());
  CHECK(contains(why_not(tuned_case(640, grouped), {.compute_capability = 100}),
                 "tuning.shrink_tile 128x96-grouped: needs compute capability 9.0"));
  CHECK(contains(why_not(tuned_case(640, grouped), {.groups = false}), "code for sm_90a"));
  spec = tuned_case(640, grouped);
  spec.layer.x_stride = (std::int64_t{1} << 35) / 640 / 8 * 8;
  CHECK(why_not(spec).empty());
  spec.layer.x_stride += 8;
  CHECK(contains(why_not(spec), "an x below 64 GiB"));
}

TEST_CASE("tuning: a number of a half that the op has not is not taken, a half has its own alone") {
  const Tuning chunks = with(kPanels, [](AutoKnobs& t) { t.chunks = 7; });
  const Tuning columns = with(kPanels, [](AutoKnobs& t) { t.expand_tile = "64x64x32"; });
  const Tuning split = with(kPanels, [](AutoKnobs& t) { t.split = 4; });
  const Tuning parts = with(kPanels, [](AutoKnobs& t) { t.parts = 8; });
  const Tuning lanes = with(kPanels, [](AutoKnobs& t) { t.shrink_tile = "64x48-joined"; });
  const auto of = [](Op op, const Tuning& tuning) {
    Case spec = tuned_case(640, tuning);
    spec.op = op;
    return why_not(spec);
  };
  CHECK(of(Op::kShrink, chunks) ==
        "tuning {family: panel, chunks: 7}: op shrink launches no expand; allowed: shrink_tile, "
        "split, parts");
  CHECK(of(Op::kExpand, split) ==
        "tuning {family: panel, split: 4}: op expand launches no shrink; allowed: expand_tile, "
        "chunks");
  CHECK(contains(of(Op::kShrink, columns), "launches no expand"));
  for (const Tuning& of_shrink : {split, parts, lanes}) {
    CHECK(contains(of(Op::kExpand, of_shrink), "op expand launches no shrink"));
    CHECK(contains(of(Op::kEmbedding, of_shrink), "op embedding launches no shrink"));
    CHECK(of(Op::kShrink, of_shrink).empty());
    CHECK(of(Op::kLinear, of_shrink).empty());
  }
  for (const Tuning& of_expand : {chunks, columns}) {
    CHECK(of(Op::kExpand, of_expand).empty());
    CHECK(of(Op::kLinear, of_expand).empty());
  }
  // Proofs and phases launch the halves of a linear op.
  const Tuning all = with(kPanels, [](AutoKnobs& t) { t.split = 4, t.chunks = 7; });
  const Problem linear = problem_of(tuned_case(640, all));
  CHECK(half_of(linear, Op::kShrink).tuning == split);
  CHECK(half_of(linear, Op::kExpand).tuning == chunks);
  for (const Op op : {Op::kShrink, Op::kExpand}) {
    CHECK(why_not_tuned({}, half_of(linear, op)).empty());
  }
}

TEST_CASE("tuning: a batch or half that it cannot have falls back to what auto chooses") {
  // Relations launch parts and excerpts of a case with its tuning.
  Problem problem = problem_of(tuned_case(64, tuning_of(kClusters)));
  problem.op = Op::kExpand;
  CHECK(auto_family({}, problem) == AutoFamily::kPanel);
  problem = problem_of(tuned_case(64, with(kPanels, [](AutoKnobs& t) { t.chunks = 65536; })));
  const kernels::PanelExpandTuning expand = auto_expand_tuning({}, problem, problem.tuning, true);
  CHECK(expand.chunks == expand.column_tiles);
  CHECK(auto_shrink_tuning({}, problem, with(kPanels, [](AutoKnobs& t) { t.split = 4; }), false)
            .split == 1);
}

TEST_CASE("tuning: rows of auto say it, others have none; a case written down keeps it") {
  Case spec =
      tuned_case(64, with(kPanels, [](AutoKnobs& t) { t.split = 4, t.expand_tile = "64x64x32"; }));
  const std::string text = "family: panel, split: 4, expand_tile: 64x64x32";
  CHECK(describe_case(spec, {problem_of(spec), {}}, "auto").step.tuning == text);
  CHECK(describe_case(spec, {problem_of(spec), {}}, "panel").step.tuning.empty());
  CHECK(contains(scenario_text(spec), "tuning: {" + text + "}\n"));
  spec.scenario = "tuned";
  spec.adapters.scale = {1};
  const Case read =
      parse_scenario(scenario_text(spec), "case.yaml", {.tuning = tuning_rules()}).cases.at(0);
  CHECK(read.tuning == spec.tuning);
  CHECK(problem_of(read).tuning == spec.tuning);
  CHECK(content_of(problem_of(spec)) == content_of(problem_of(tuned_case(64, {}))));
}

TEST_CASE("tuning: each value of each knob is read, written and read again, in one order") {
  const auto read = [](const std::string& tuning, const TuningRules& rules) {
    return parse_scenario("layer: {in: 64, out: [64]}\nbatch.decode: 4\ntuning: {" + tuning + "}\n",
                          "tuned.yaml", {.tuning = rules})
        .cases.at(0)
        .tuning;
  };
  std::set<std::string> knobs{"family"};
  for (const AutoFamily family :
       {AutoFamily::kClustered, AutoFamily::kResident, AutoFamily::kPanel}) {
    const Tuning plain = tuning_of({.family = family});
    CHECK(read(tuning_text(plain), tuning_rules()) == plain);
    for (const KnobValue& value : values_to_try(family)) {
      const Tuning said = with_value(plain, value);
      CAPTURE(tuning_text(said));
      knobs.insert(value.knob);
      CHECK(said == Tuning{plain[0], value});
      CHECK_FALSE(tuning_rules().fault(said));
      CHECK(read(tuning_text({value, plain[0]}), tuning_rules()) == said);
      CHECK(tuning_of(knobs_of(said)) == said);
    }
  }
  CHECK(knobs.size() == tuning_rules().knobs.size());
  CHECK(tuning_text(read("chunks: 2, parts: 8, split: 4, family: panel, shrink_tile: 64x48",
                         tuning_rules())) ==
        "family: panel, shrink_tile: 64x48, split: 4, parts: 8, chunks: 2");
  // What leaves the choice to auto says nothing.
  CHECK(read("family: auto, chunks: 0", tuning_rules()).empty());
  CHECK_THROWS_AS(static_cast<void>(knobs_of({{"spilt", "4"}})), std::logic_error);
}

TEST_CASE("tuning: a search varies what matters most first") {
  const auto order = [](AutoFamily family) {
    std::string knobs;
    for (const KnobValue& value : values_to_try(family)) {
      knobs += knobs.ends_with(" " + value.knob) ? "" : " " + value.knob;
    }
    return knobs;
  };
  CHECK(order(AutoFamily::kClustered) == " cluster groups warps slots blocks");
  CHECK(order(AutoFamily::kPanel) == " shrink_tile split parts chunks expand_tile");
  CHECK(order(AutoFamily::kResident).empty());
}

TEST_CASE("tuning: what no device launches is an error of the scenario, with its place") {
  const auto message = [](const std::string& tuning) {
    const std::string text =
        "layer: {in: 64, out: [64]}\nbatch.decode: 4\ntuning: {" + tuning + "}\n";
    try {
      static_cast<void>(parse_scenario(text, "tuned.yaml", {.tuning = tuning_rules()}));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message("family: panel, split: 4, shrink_tile: 128x96").empty());
  CHECK(
      message("family: clustered, cluster: 6, groups: 3, warps: 12, slots: 1, blocks: 2").empty());
  CHECK(contains(message("family: panel, groups: 2"), "allowed: tuning.family clustered"));
  CHECK(contains(message("family: panel, split: 3"),
                 "tuned.yaml:3:32: 'tuning.split' is 3; allowed: 1, 2, 4, 8; 0 leaves it"));
  CHECK(contains(message("family: clustered, cluster: 9"), "allowed: 1, 2, 3, 4, 5, 6, 7, 8, 16"));
  CHECK(contains(message("family: panel, split: 4, parts: 2"),
                 "'tuning.parts' is 2 with tuning.split 4; allowed: at least the split"));
  CHECK(contains(message("family: panel, shrink_tile: 64x49"), "'64x49'; allowed: "));
  CHECK(contains(message("family: panel, shrink_tile: 64x49"), "64x48"));
  CHECK(message("family: panel, split: 8, parts: 1, shrink_tile: 32x64-joined").empty());
  CHECK(contains(message("family: panel, split: 4, shrink_tile: 32x64-joined"),
                 "'tuning.shrink_tile' is 32x64-joined with tuning.split 4, tuning.parts 0; "
                 "allowed: split 8 and 1 part"));
  CHECK(contains(message("family: panel, parts: 2, shrink_tile: 64x48-joined"), "and 1 part"));
  CHECK(message("family: panel, split: 4, parts: 4, shrink_tile: 64x48-grouped").empty());
  CHECK(contains(message("family: panel, parts: 2, shrink_tile: 64x48-grouped"),
                 "'tuning.shrink_tile' is 64x48-grouped with tuning.split 0, tuning.parts 2; "
                 "allowed: split up to 4 and 4 parts"));
  CHECK(contains(message("family: panel, split: 8, shrink_tile: 64x48-grouped"), "split up to 4"));
  CHECK(contains(message("split: 4"),
                 "'tuning.split' with tuning.family auto; allowed: tuning.family panel"));
  CHECK(contains(message("family: panel, warps: 4"), "allowed: tuning.family clustered"));
  CHECK(contains(message("family: clusterd"), "did you mean 'clustered'?"));
}
