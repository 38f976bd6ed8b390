#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/random.h"
#include "ops/auto_tuning.h"
#include "scenario/scenario.h"
#include "support/workload_case.h"

using namespace lora_bench;

namespace {

// As a user takes it: the line of `plan --explain`, in a scenario.
Tuning read_in_scenario(const Tuning& tuning) {
  return parse_scenario(
             "layer: {in: 64, out: [64]}\nbatch.decode: 4\ntuning: {" + tuning_text(tuning) + "}\n",
             "copied.yaml", {.tuning = tuning_rules()})
      .cases.front()
      .tuning;
}

// The first line says why it was chosen: once it is asked for, because it is.
std::vector<std::string> launch_explained(const AutoDevice& device, const Problem& problem) {
  std::vector<std::string> lines = explain_auto(device, problem);
  lines.erase(lines.begin());
  return lines;
}

void check_numbers(const AutoDevice& device, const Problem& problem, const Tuning& tuning) {
  const AutoKnobs copied = knobs_of(tuning);
  switch (auto_family(device, problem)) {
    case AutoFamily::kResident:
      CHECK(tuning == tuning_of({.family = AutoFamily::kResident}));
      break;
    case AutoFamily::kClustered: {
      const kernels::ClusteredTuning chosen = auto_clustered_tuning(device, problem);
      CHECK(copied.family == AutoFamily::kClustered);
      CHECK(copied.cluster == chosen.cluster);
      CHECK(copied.groups == chosen.groups);
      CHECK(copied.warps == chosen.warps);
      CHECK(copied.slots == chosen.slots);
      break;
    }
    case AutoFamily::kPanel: {
      const auto shrink =
          auto_shrink_tuning(device, problem, problem.tuning, shrinks_in_vectors(problem));
      const auto expand =
          auto_expand_tuning(device, problem, problem.tuning, expands_in_vectors(problem));
      const bool tiles_shrink = has_shrink(problem.op) && shrink.tile != kernels::kPanelPlain;
      const bool tiles_expand = has_expand(problem.op) && expand.tile != kernels::kPanelPlain;
      CHECK(copied.family == AutoFamily::kPanel);
      CHECK(copied.split == (tiles_shrink ? shrink.split : 0));
      CHECK(copied.chunks == (tiles_expand ? expand.chunks : 0));
      CHECK(copied.shrink_tile.empty() != tiles_shrink);
      CHECK(copied.expand_tile.empty() != tiles_expand);
      break;
    }
  }
}

void check_copied(const AutoDevice& device, const Problem& problem) {
  const Tuning copied = tuning_of_choice(device, problem);
  CAPTURE(tuning_text(copied));
  check_numbers(device, problem, copied);
  Problem told = problem;
  told.tuning = read_in_scenario(copied);
  REQUIRE(why_not_tuned(device, told).empty());
  CHECK(launch_explained(device, told) == launch_explained(device, problem));
  CHECK(tuning_of_choice(device, told) == copied);

  const AutoFamily family = auto_family(device, problem);
  CHECK(auto_family(device, told) == family);
  if (family == AutoFamily::kClustered) {
    CHECK(auto_clustered_tuning(device, told) == auto_clustered_tuning(device, problem));
  }
  if (family == AutoFamily::kResident) {
    CHECK(auto_resident_tuning(device, told) == auto_resident_tuning(device, problem));
  }
  if (family == AutoFamily::kPanel && has_shrink(problem.op)) {
    const bool vectors = shrinks_in_vectors(problem);
    CHECK(auto_shrink_tuning(device, told, told.tuning, vectors) ==
          auto_shrink_tuning(device, problem, problem.tuning, vectors));
  }
  if (family == AutoFamily::kPanel && has_expand(problem.op)) {
    const bool vectors = expands_in_vectors(problem);
    CHECK(auto_expand_tuning(device, told, told.tuning, vectors) ==
          auto_expand_tuning(device, problem, problem.tuning, vectors));
  }
}

std::vector<Case> shipped_cases() {
  std::vector<Case> cases;
  for (const char* file : {"anchors", "auto-wide"}) {
    const Scenario scenario =
        load_scenario(LORA_BENCH_SOURCE_DIR "/scenarios/" + std::string(file) + ".yaml", {});
    cases.insert(cases.end(), scenario.cases.begin(), scenario.cases.end());
  }
  return cases;
}

const std::vector<AutoDevice> kDevices{{},
                                       {.multiprocessors = 66},
                                       {.groups = false},
                                       {.compute_capability = 100},
                                       {.compute_capability = 80, .shared_bytes = 163 << 10}};

}  // namespace

TEST_CASE("the tuning of what auto chooses, copied into a scenario, is the same launch") {
  for (const Case& spec : shipped_cases()) {
    CAPTURE(spec.id);
    const Problem problem = problem_of(spec);
    for (const AutoDevice& device : kDevices) {
      check_copied(device, problem);
    }
  }
}

TEST_CASE("the tuning of a launch for any batch within limits, copied, is the same launch") {
  for (Case& spec : shipped_cases()) {
    CAPTURE(spec.id);
    const Problem own = problem_of(spec);
    spec.plan = {.max_tokens = own.tokens + own.tokens / 2, .max_slots = own.slots};
    check_copied({}, problem_of(spec));
  }
}

TEST_CASE("the tuning of each op, and of what is read an element at a time, copied is the same") {
  for (Case& spec : shipped_cases()) {
    CAPTURE(spec.id);
    for (const Op op : {Op::kShrink, Op::kExpand, Op::kEmbedding, Op::kLogits}) {
      spec.op = op;
      check_copied({}, problem_of(spec));
    }
    spec.op = Op::kLinear;
    spec.layer.x_stride += 1;
    check_copied({}, problem_of(spec));
    spec.layer.x_stride -= 1;
    spec.layer.y_stride += 1;
    check_copied({}, problem_of(spec));
    spec.layer.y_stride -= 1;
    spec.adapters.max_rank = 264;  // more lanes than a tile of expand has
    check_copied({}, problem_of(spec));
  }
}

TEST_CASE("where a tuning says some numbers, all of the launch, copied, are the same") {
  const std::vector<AutoKnobs> said{
      {.family = AutoFamily::kClustered},
      {.family = AutoFamily::kClustered, .cluster = 4},
      {.family = AutoFamily::kClustered, .warps = 4, .blocks = 1},
      {.family = AutoFamily::kClustered, .slots = 2, .blocks = 2},
      {.family = AutoFamily::kResident},
      {.family = AutoFamily::kPanel},
      {.family = AutoFamily::kPanel, .split = 2},
      {.family = AutoFamily::kPanel, .shrink_tile = "32x64-joined"},
      {.family = AutoFamily::kPanel, .shrink_tile = "64x48-grouped", .chunks = 3}};
  int launched = 0;
  for (Case& spec : shipped_cases()) {
    CAPTURE(spec.id);
    for (const AutoKnobs& knobs : said) {
      spec.tuning = tuning_of(knobs);
      const Problem problem = problem_of(spec);
      if (why_not_tuned({}, problem).empty()) {
        ++launched;
        check_copied({}, problem);
      }
    }
  }
  CHECK(launched > 800);
}

TEST_CASE("three warps a block are said, and copied are the same launch") {
  Case spec = workload_case(72, 72);
  spec.dtype = Dtype::kBf16;
  spec.layer.in_features = spec.layer.x_stride = 4096;
  spec.layer.widths = {4096, 1024, 1024};
  spec.layer.y_stride = 6144;
  spec.adapters.rank.list = {32};
  spec.adapters.max_rank = 32;
  spec.skew.kind = Skew::kDistinct;
  const Problem problem = problem_of(spec);
  REQUIRE(auto_clustered_tuning({}, problem).warps == 3);
  check_copied({}, problem);
}

TEST_CASE("what launches nothing has no tuning") {
  Case spec = shipped_cases().front();
  spec.adapters.active = 0;
  spec.no_adapter = 1;
  CHECK(tuning_of_choice({}, problem_of(spec)) == Tuning{});
  spec = shipped_cases().front();
  spec.dtype = Dtype::kFp32;
  CHECK(tuning_of_choice({}, problem_of(spec)) == Tuning{});
  spec = shipped_cases().front();
  spec.tuning = tuning_of({.family = AutoFamily::kClustered, .warps = 16, .slots = 4});
  CHECK(tuning_of_choice({}, problem_of(spec)) == Tuning{});
}
