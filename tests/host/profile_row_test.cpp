#include "run/profile.h"

#include <doctest/doctest.h>

#include <atomic>

#include "ops/backends.h"
#include "run/watch.h"
#include "scenario/scenario.h"
#include "support/process.h"
#include "support/small_scenario.h"

namespace lora_bench::test {
namespace {

Case small_case(const TemporaryFolder& folder, double timeout_s) {
  Scenario scenario = load_scenario(folder.write("small.yaml", small_scenario()), {});
  Case spec = scenario.cases.front();
  spec.verify.timeout_s = timeout_s;
  return spec;
}

ProfiledRow profiled(const std::string& behaviour, double timeout_s = 60) {
  const TemporaryFolder folder;
  Targets targets;
  return profile_row(small_case(folder, timeout_s), make_fake(behaviour), targets);
}

TEST_CASE("profile_row: launched, not supported, or what was thrown") {
  CHECK(profiled("").status == Status::kPassed);
  CHECK(profiled("").told ==
        "launched once in the range");  // scripts/profile-cases.py looks for it
  CHECK(profiled("unsupported").status == Status::kSkipped);
  const ProfiledRow thrown = profiled("throw");
  CHECK(thrown.status == Status::kError);
  CHECK(contains(thrown.told, "fake:throw throws"));
}

TEST_CASE("profile_row: a launch that hangs ends by the time-out of the case, or by one signal") {
  const ProfiledRow hung = profiled("hang", 0.05);
  CHECK(hung.status == Status::kHung);
  CHECK(hung.told == "did not return within 0.05 s");
  static std::atomic<bool> asked{false};
  static std::atomic<bool> not_asked{false};
  record_interrupt(&asked);
  asked = true;
  const ProfiledRow cut = profiled("hang");
  asked = false;
  record_interrupt(&not_asked);
  CHECK(cut.interrupted);
  CHECK(any_abandoned());
  release_hung_fakes();
}

}  // namespace
}  // namespace lora_bench::test
