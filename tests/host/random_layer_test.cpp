#include <doctest/doctest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "layers/layer_problem.h"
#include "ops/auto_tuning.h"
#include "ops/backends.h"
#include "scenario/scenario.h"
#include "scenario/schema.h"
#include "support/draws.h"
#include "verify/layer_proof.h"
#include "verify/random_case.h"

using namespace lora_bench;

namespace {

constexpr std::uint64_t kCases = 2000;

LoadOptions with_layers() {
  LoadOptions options{.tuning = tuning_rules()};
  options.check_layer = layer_fault;
  return options;
}

Case read_again(const Case& spec) {
  return parse_scenario(scenario_text(spec), "case.yaml", with_layers()).cases.at(0);
}

bool never() { return false; }

}  // namespace

TEST_CASE("a random layer is one that a scenario may hold, and reads back as itself") {
  for (std::uint64_t index = 0; index < kCases; ++index) {
    const Case spec = random_layer_case(11, index);
    CAPTURE(scenario_text(spec));
    CHECK(content_hash({read_again(spec)}) == content_hash({spec}));
    CHECK(random_layer_case(11, index) == spec);
  }
}

TEST_CASE("random layers have every kind in every division, and every field of layers") {
  std::set<std::string> divisions;
  std::set<std::string> said;
  for (std::uint64_t index = 0; index < kCases; ++index) {
    const Case spec = random_layer_case(12, index);
    divisions.insert(std::string(name(spec.setup.kind)) + (spec.setup.tp > 1 ? " divided" : "") +
                     (spec.setup.fully_sharded ? " fully" : ""));
    for (const Field& field : fields()) {
      if (field.of_op_alone == Op::kLayer && field.is_said(spec)) {
        said.insert(field.doc.path);
      }
    }
  }
  for (const LayerDescription& kind : layer_descriptions()) {
    for (const std::string division : {"", " divided", " fully", " divided fully"}) {
      const bool fully = division.find("fully") != std::string::npos;
      CAPTURE(name(kind.kind));
      CAPTURE(division);
      CHECK((!fully || kind.full.has_value()) ==
            divisions.contains(std::string(name(kind.kind)) + division));
    }
  }
  for (const Field& field : fields()) {
    // Those of a machine are not drawn.
    if (field.of_op_alone == Op::kLayer && field.doc.path != "layer.comm" &&
        field.doc.path != "layer.base_algorithm") {
      CAPTURE(field.doc.path);
      CHECK(said.contains(field.doc.path));
    }
  }
}

TEST_CASE("random layers are proved on the host") {
  const std::unique_ptr<Backend> cpu = make_cpu_backend({.threads = 1, .isa = ""});
  const std::unique_ptr<Memory> memory = make_host_memory();
  for (std::int64_t index = 0; index < test::draws(200); ++index) {
    const Case spec = random_layer_case(14, static_cast<std::uint64_t>(index));
    CAPTURE(scenario_text(spec));
    LayerProblem problem = *step_of(spec).layer;
    problem.overlap = chosen_overlap(spec.setup.overlap, problem, *cpu);
    const Verdict verdict =
        verify_layer(problem, *cpu, *cpu, *memory, {.relations = index % 4 == 0});
    CHECK_MESSAGE(verdict.status == Status::kPassed, verdict.message);
  }
}

TEST_CASE("of eight cases that fuzz draws one is a layer") {
  int layers = 0;
  for (std::uint64_t index = 0; index < 80; ++index) {
    layers += fuzz_case(3, index).op == Op::kLayer ? 1 : 0;
  }
  CHECK(layers == 10);
}

TEST_CASE("a layer shrinks to the division and the fields that its fault needs and no more") {
  const auto fails = [](const Case& spec) {
    return spec.op == Op::kLayer && spec.setup.tp > 1 && spec.setup.gather_output &&
           spec.layer.in_features > 4;
  };
  int shrunk = 0;
  for (std::uint64_t index = 0; index < 200; ++index) {
    const Case drawn = random_layer_case(2, index);
    if (!fails(drawn)) {
      continue;
    }
    ++shrunk;
    const Shrunk found = shrink_case(drawn, fails, never);
    CAPTURE(scenario_text(found.spec));
    CHECK(found.spec.setup.tp == 2);
    CHECK(found.spec.layer.in_features == 5);
    CHECK_FALSE(found.spec.setup.fully_sharded);
    CHECK_FALSE(found.spec.setup.bias);
    CHECK_FALSE(found.spec.setup.missing_slices);
    CHECK(found.spec.setup.missing.empty());
    CHECK(found.spec.setup.overlap == Overlap::kAuto);
    CHECK(found.spec.adapters.max_rank == 1);
  }
  CHECK(shrunk > 5);
}

TEST_CASE("every layer that is tried for a smaller failure is one that a scenario may hold") {
  for (std::uint64_t index = 0; index < 60; ++index) {
    std::uint64_t turn = 0;
    const auto fails = [&](const Case& spec) {
      CAPTURE(scenario_text(spec));
      CHECK(content_hash({read_again(spec)}) == content_hash({spec}));
      return ++turn % 3 == 0;
    };
    static_cast<void>(shrink_case(random_layer_case(4, index), fails, never));
  }
}
