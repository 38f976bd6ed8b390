#include "support/skipped.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "support/process.h"

namespace lora_bench::test {
namespace {

// Run by the test below alone, in a process of their own.
TEST_CASE("of a skip: one that cannot run here" * doctest::skip()) {
  note_skipped("nothing to prove it with");
}
TEST_CASE("of a skip: one that passes" * doctest::skip()) { CHECK(true); }
TEST_CASE("of a skip: one that fails" * doctest::skip()) { CHECK(false); }

ProcessResult run_parts(const std::string& tests) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  return run_process({self, "--no-skip", "--test-case=" + tests});
}

TEST_CASE("a test that is skipped hides none of those after it, and does not count as passed") {
  const ProcessResult passing = run_parts("of a skip: one that c*,of a skip: one that passes");
  CAPTURE(passing.out);
  CHECK(passing.exit_code == 77);
  CHECK(contains(passing.err, "skipped: nothing to prove it with"));
  CHECK(contains(passing.out, "assertions: 1 | 1 passed"));
  CHECK(run_parts("of a skip: *").exit_code == 1);
  CHECK(run_parts("of a skip: one that passes").exit_code == 0);
}

}  // namespace
}  // namespace lora_bench::test
