#include "core/error.h"

#include <doctest/doctest.h>

namespace lora_bench {
namespace {

TEST_CASE("the nearest word is offered, and none when nothing is near") {
  const std::vector<std::string> words{"adapters", "max_time_us", "rank"};
  CHECK(nearest("adaptres", words) == "adapters");
  CHECK(nearest("rnak", words) == "rank");
  CHECK(nearest("max_time", words) == "max_time_us");
  CHECK(nearest("zebra", words).empty());
  CHECK(nearest("", words).empty());
}

TEST_CASE("a diagnostic says place, what, what is allowed and what was meant") {
  Diagnostic diagnostic;
  diagnostic.where = {"a.yaml", 3, 7};
  diagnostic.what = "unknown key 'rnak'";
  CHECK(to_string(diagnostic) == "a.yaml:3:7: unknown key 'rnak'");
  diagnostic.allowed = "rank, slots";
  diagnostic.suggestion = "rank";
  CHECK(to_string(diagnostic) ==
        "a.yaml:3:7: unknown key 'rnak'; allowed: rank, slots; did you mean 'rank'?");
  diagnostic.where = {"--set rnak=3", 0, 0};
  CHECK(to_string(diagnostic).rfind("--set rnak=3: unknown", 0) == 0);
}

}  // namespace
}  // namespace lora_bench
