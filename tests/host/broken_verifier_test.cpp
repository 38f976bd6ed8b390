#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <string>

#include "support/proved.h"
#include "support/workload_case.h"
#include "verify/mutant_hunt.h"
#include "verify/random_case.h"

using namespace lora_bench;

namespace {

struct BrokenVerifier {
  std::string what;
  Prover prove;
};

Verdict honest_verdict(const Problem& problem, const Backend& backend, Memory& memory,
                       const VerifyOptions& options) {
  return verify(problem, backend, memory, options);
}

// What the levels would say of a comparison that was made of nothing.
Verdict passed_on(std::int64_t compared) {
  Verdict verdict;
  verdict.status = Status::kPassed;
  verdict.passed = {Level::kExact, Level::kBounded, Level::kMemory};
  verdict.compared = compared;
  return verdict;
}

Verdict only(Status status) {
  Verdict verdict;
  verdict.status = status;
  return verdict;
}

// Whose bounded level takes everything and says so of nothing, as if the bound had no end.
Verdict without_bound(const Problem& problem, const Backend& backend, Memory& memory,
                      VerifyOptions options) {
  options.without = options.without == Part::kNone ? Part::kBounded : options.without;
  return verify(problem, backend, memory, options);
}

std::vector<BrokenVerifier> broken_verifiers() {
  const auto says = [](const Verdict& verdict) {
    return [verdict](const Problem&, const Backend&, Memory&, const VerifyOptions&) {
      return verdict;
    };
  };
  return {{"always PASSED", says(passed_on(100))},
          {"always MISTRUSTED", says(only(Status::kMistrusted))},
          {"always SKIPPED", says(only(Status::kSkipped))},
          {"an empty sample", says(passed_on(0))},
          {"a bound without end", without_bound}};
}

// The self-test of this verifier over a few mutants and right kernels.
SelfTestReport tested(const Prover& prove) {
  const std::set<std::string> few{"no-op", "scale-last-bits", "tf32-operands", "x-changed"};
  const HuntingGround ground(telling_cases());
  SelfTestReport report;
  for (const MutantDoc& doc : mutants()) {
    if (few.contains(doc.fault)) {
      report.rows.push_back(hunt_and_judge(doc, ground, never, prove));
    }
  }
  try_correct(*make_mutant("none"), 12, 3, report, never, prove);
  return report;
}

// What the tests of kernels on a GPU and emulated ones ask of right kernels.
std::string asked_of_right_kernels(const Prover& prove) {
  const auto right = make_mutant("none");
  const auto memory = make_host_memory();
  test::Proved proved;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const Problem problem = problem_of(random_case(seed));
    const Verdict verdict = prove(problem, *right, *memory, {});
    if (const std::string why = proved.why_not(problem, verdict); !why.empty()) {
      return why;
    }
  }
  return proved.why_too_little();
}

}  // namespace

TEST_CASE("the self-test is sound of the verifier, and unsound of one that is broken in any way") {
  CHECK(sound(tested(honest_verdict)));
  for (const BrokenVerifier& broken : broken_verifiers()) {
    CAPTURE(broken.what);
    CHECK_FALSE(sound(tested(broken.prove)));
  }
}

TEST_CASE("right kernels that a broken verifier looked at are not taken for proved") {
  CHECK(asked_of_right_kernels(honest_verdict) == "");
  for (const BrokenVerifier& broken : broken_verifiers()) {
    CAPTURE(broken.what);
    // That one says PASSED of right kernels and compares them: mutants alone tell.
    const bool right_of_right_kernels = broken.what == "always PASSED";
    CHECK((asked_of_right_kernels(broken.prove) == "") == right_of_right_kernels);
  }
}

TEST_CASE("right kernels that are all MISTRUSTED make the self-test unsound") {
  SelfTestReport report = tested(honest_verdict);
  REQUIRE(sound(report));
  report.correct_passed = 10;
  CHECK_FALSE(sound(report));
}
