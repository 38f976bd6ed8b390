#include <doctest/doctest.h>

#include <set>

#include "device/facts.h"
#include "support/draws.h"
#include "verify/diagnose.h"
#include "verify/layer_faults.h"
#include "verify/metadata_proof.h"
#include "verify/mutant_hunt.h"
#include "verify/mutants.h"
#include "verify/quantise_proof.h"
#include "verify/random_case.h"

using namespace lora_bench;

namespace {

// tests/CMakeLists.txt has what a sanitizer slows down run in as many processes.
constexpr std::size_t kShares = 6;

std::size_t in_share(std::size_t mutants, std::size_t share) {
  return (mutants + kShares - 1 - share) / kShares;
}

void check_share(std::size_t share) {
  const SelfTestReport report = self_test(1, 1, [](const std::string&) {}, never, {share, kShares});
  CHECK(sound(report));
  const std::size_t hunted = in_share(mutants().size(), share);
  REQUIRE(report.rows.size() >= hunted);
  for (std::size_t at = 0; at < hunted; ++at) {
    const MutantDoc& doc = mutants()[share + at * kShares];
    const SelfTestRow& row = report.rows[at];
    CAPTURE(doc.fault);
    CAPTURE(row.level);
    CAPTURE(row.case_id);
    CHECK(row.fault == doc.fault);
    CHECK(row.caught);
    CAPTURE(row.hypothesis);
    CHECK(row.named_right);
    CHECK(row.part_needed);
  }
  if (!why_no_gpu().empty()) {  // what cannot run is skipped, never caught
    const std::size_t skipped = in_share(gpu_mutants().size(), share);
    CHECK(report.skipped == static_cast<std::int64_t>(skipped));
    CHECK(report.why_skipped == why_no_gpu());
    CHECK(report.rows.size() == hunted + in_share(layer_faults().size(), share) +
                                    in_share(metadata_faults().size(), share) +
                                    in_share(quantise_faults().size(), share));
  }
}

}  // namespace

TEST_CASE("mutants are caught, named where a name fits, by the part meant for them: share 1") {
  check_share(0);
}
TEST_CASE("mutants are caught, named where a name fits, by the part meant for them: share 2") {
  check_share(1);
}
TEST_CASE("mutants are caught, named where a name fits, by the part meant for them: share 3") {
  check_share(2);
}
TEST_CASE("mutants are caught, named where a name fits, by the part meant for them: share 4") {
  check_share(3);
}
TEST_CASE("mutants are caught, named where a name fits, by the part meant for them: share 5") {
  check_share(4);
}
TEST_CASE("mutants are caught, named where a name fits, by the part meant for them: share 6") {
  check_share(5);
}

TEST_CASE("a mutant stands for every hypothesis and needs every part of the proof") {
  std::set<std::string> named;
  std::set<Part> needed{Part::kNone};
  for (const MutantDoc& doc : mutants()) {
    named.insert(doc.hypothesis);
    needed.insert(doc.alone);
  }
  for (const GpuFaultEntry& entry : gpu_fault_catalogue()) {
    if (entry.doc.hypothesis == "out-of-turn") {  // a host has no streams
      named.insert(entry.doc.hypothesis);
    }
  }
  for (const HypothesisDoc& doc : hypotheses()) {
    CAPTURE(doc.key);
    CHECK_MESSAGE(named.contains(std::string(doc.key)), "no mutant stands for this hypothesis");
  }
  CHECK(needed == std::set<Part>{Part::kNone, Part::kExact, Part::kShifted, Part::kBounded,
                                 Part::kUneven, Part::kRelations, Part::kMemory});
}

TEST_CASE("the right kernel raises no alarm, neither in the telling cases nor in random ones") {
  CHECK_FALSE(hunt("none", HuntingGround(telling_cases())).caught);
  SelfTestReport report;
  try_correct(*make_mutant("none"), test::draws(50), 7, report);
  CHECK(report.correct_cases == test::draws(50));
  CHECK(report.false_alarms == 0);
  for (const std::string& message : report.alarm_messages) {
    MESSAGE(message);
  }
}

TEST_CASE("a diagnosis speaks of rows, adapters and counts") {
  const Case spec = telling_cases().front();
  const Problem problem = make_problem(spec);
  const auto explained = [&](const char* fault) {
    const std::unique_ptr<Memory> memory = make_host_memory();
    const Verdict verdict = verify(problem, *make_mutant(fault), *memory, {});
    return verdict.failure ? verdict.failure->explanation : "";
  };
  CHECK(explained("lost-k-tail-32") ==
        "the last 32 of 100 elements of every sum over K are missing");
  CHECK(explained("rank-lane-lost") == "the last rank lane is missing");
  const std::string token = std::to_string(problem.plan.token_order[0]);
  const std::string other = std::to_string(problem.plan.active_ids[1]);
  const std::string own = std::to_string(problem.plan.active_ids[0]);
  CHECK(explained("one-row-wrong-adapter") ==
        "row " + token + " holds the result of adapter " + other + " instead of adapter " + own);
}

TEST_CASE("random cases are the same for the same seed and differ between indices") {
  std::set<std::string> shapes;
  for (std::uint64_t index = 0; index < 20; ++index) {
    const Case first = random_case(3, index);
    const Case second = random_case(3, index);
    CHECK(first.layer.widths == second.layer.widths);
    CHECK(first.adapters.rank.list == second.adapters.rank.list);
    shapes.insert(std::to_string(first.layer.in_features) + "x" +
                  std::to_string(first.layer.y_stride) + "x" + std::to_string(first.batch.decode));
  }
  CHECK(shapes.size() > 10);
}

TEST_CASE("a mutant that is missed, misnamed or caught by another part makes the test unsound") {
  const HuntingGround ground(telling_cases());
  MutantDoc doc{"scale-twice", "", "double-scale", "design"};
  SelfTestReport report;
  CHECK_FALSE(sound(report));
  report.rows = {hunt_and_judge(doc, ground)};
  CHECK(sound(report));
  doc.hypothesis = "zero-delta";
  report.rows = {hunt_and_judge(doc, ground)};
  CHECK(report.rows.front().caught);
  CHECK_FALSE(sound(report));
  doc.hypothesis = "double-scale";
  doc.alone = Part::kBounded;
  report.rows = {hunt_and_judge(doc, ground)};
  CHECK_FALSE(sound(report));
  doc = {"none", "", "", "design"};
  report.rows = {hunt_and_judge(doc, ground)};
  CHECK_FALSE(sound(report));
  report.rows.clear();
  report.false_alarms = 1;
  CHECK_FALSE(sound(report));
}
