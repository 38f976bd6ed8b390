#include <doctest/doctest.h>

#include "core/error.h"
#include "report/filter.h"
#include "support/rows.h"

using namespace lora_bench;

namespace {

bool keeps(const std::vector<std::string>& expressions, const Row& row = fixed_rows().front()) {
  return Filter(expressions, {"batch.decode"}).matches(row);
}

std::string refusal(const std::string& expression) {
  try {
    const Filter filter({expression}, {"batch.decode"});
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("numbers are compared as numbers, also of swept keys") {
  CHECK(keeps({"rank>=16"}));
  CHECK_FALSE(keeps({"rank>16"}));
  CHECK(keeps({"rank = 16.0"}));
  CHECK(keeps({"rank==16"}));
  CHECK(keeps({"tokens<16"}));
  CHECK(keeps({"time_us<=25"}));
  CHECK_FALSE(keeps({"time_us!=25"}));
  CHECK(keeps({"batch.decode<16"}));
  CHECK_FALSE(keeps({"batch.decode!=8.0"}));
}

TEST_CASE("texts are compared whole, with globs, and several filters are and-ed") {
  CHECK(keeps({"backend=cpu"}));
  CHECK_FALSE(keeps({"backend=cp"}));
  CHECK(keeps({"case=*decode=8"}));
  CHECK(keeps({"case=q?v/*"}));
  CHECK(keeps({"status!=FAILED"}));
  CHECK(keeps({"tags=short"}));
  CHECK(keeps({"tags!=long"}));
  CHECK(keeps({"add_inputs=true"}));
  CHECK(keeps({"backend=cpu", "rank=16"}));
  CHECK_FALSE(keeps({"backend=cpu", "rank=17"}));
}

TEST_CASE("an absent value matches no comparison, and is unequal to everything") {
  const Row failed = fixed_rows()[4];
  CHECK_FALSE(keeps({"time_us>0"}, failed));
  CHECK_FALSE(keeps({"time_us=25"}, failed));
  CHECK(keeps({"time_us!=25"}, failed));
}

TEST_CASE("a filter that cannot be meant is refused") {
  CHECK(refusal("rnak>=64").find("unknown column 'rnak'") != std::string::npos);
  CHECK(refusal("rnak>=64").find("did you mean 'rank'?") != std::string::npos);
  CHECK(refusal("batch.decod=1").find("did you mean 'batch.decode'?") != std::string::npos);
  CHECK(refusal("rank").find("no operator") != std::string::npos);
  CHECK(refusal("").find("no operator") != std::string::npos);
  CHECK(refusal("rank=high").find("'rank' is a number") != std::string::npos);
  CHECK(refusal("rank>=").find("'rank' is a number") != std::string::npos);
  CHECK(refusal("rank!64").find("no operator") != std::string::npos);
  CHECK(refusal("backend>cpu").find("'backend' is not a number") != std::string::npos);
  CHECK(refusal("batch.decode<few").find("needs a number") != std::string::npos);
}

TEST_CASE("a glob matches the whole text") {
  CHECK(glob_matches("", ""));
  CHECK(glob_matches("*", ""));
  CHECK(glob_matches("a*b*c", "a-b-b-c"));
  CHECK_FALSE(glob_matches("a*b*c", "a-b-b-d"));
  CHECK_FALSE(glob_matches("?", ""));
  CHECK(glob_matches("**a", "aaa"));
  CHECK_FALSE(glob_matches("a", "ab"));
}
