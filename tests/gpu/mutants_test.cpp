#include <doctest/doctest.h>

#include <algorithm>

#include "support/need_gpu.h"
#include "support/proved.h"
#include "verify/mutant_hunt.h"
#include "verify/mutants.h"
#include "verify/random_case.h"

using namespace lora_bench;

namespace {

Problem problem_of(const Case& spec) { return make_problem(spec); }

std::vector<Case> telling_case(const std::string& id) {
  std::vector<Case> cases = telling_cases();
  cases.erase(
      std::remove_if(cases.begin(), cases.end(), [&](const Case& spec) { return spec.id != id; }),
      cases.end());
  return cases;
}

}  // namespace

TEST_CASE(
    "every GPU mutant is caught at its level in its case, and named where a name is asked for") {
  LORA_BENCH_NEED_GPU()
  for (const GpuFaultEntry& entry : gpu_fault_catalogue()) {
    CAPTURE(entry.doc.fault);
    CAPTURE(entry.doc.hypothesis);
    const SelfTestRow row = hunt_and_judge(entry.doc, HuntingGround(telling_case(entry.seen_in)));
    CAPTURE(row.level);
    CAPTURE(row.hypothesis);
    CAPTURE(row.case_id);
    CHECK(row.caught);
    CHECK(row.level.starts_with(name(entry.level)));
    CHECK(row.named_right);
    CHECK(row.part_needed);
  }
}

TEST_CASE("the right GPU kernels that mutants derive from raise no alarm") {
  LORA_BENCH_NEED_GPU()
  const SelfTestRow row = hunt("gpu-none", HuntingGround(telling_cases()));
  CAPTURE(row.level);
  CAPTURE(row.case_id);
  CHECK_FALSE(row.caught);
}

TEST_CASE("the right GPU kernels pass every level on 200 random cases") {
  LORA_BENCH_NEED_GPU()
  const auto memory = make_device_memory();
  const auto right = make_mutant("gpu-none");
  const DeviceFacts facts = gpu_facts();
  int tried = 0;
  test::Proved proved;
  for (std::uint64_t index = 0; tried < 200; ++index) {
    const Problem problem = problem_of(random_case(11, index));
    if (!right->supports(problem, facts).yes) {
      continue;
    }
    ++tried;
    const Verdict verdict = verify(problem, *right, *memory, {.relations = true});
    CAPTURE(index);
    CAPTURE(verdict.message);
    check_proved(proved, problem, verdict);
  }
  check_enough(proved);
}
