#include "core/units.h"

#include <doctest/doctest.h>

using namespace lora_bench;

TEST_CASE("a share is a number or a percentage") {
  CHECK(share_in("0.05") == 0.05);
  CHECK(share_in("5%") == 0.05);
  CHECK(share_in("100%") == 1.0);
  CHECK(share_in("-1%") == -0.01);
  for (const char* text : {"", "%", "5 %", "5%%", "x", "nan", "inf%", "0.05x"}) {
    CAPTURE(text);
    CHECK_FALSE(share_in(text).has_value());
  }
}

TEST_CASE("a number is the whole text and fits its type") {
  CHECK(integer_in("-7") == -7);
  CHECK_FALSE(integer_in("7.0").has_value());
  CHECK_FALSE(integer_in("9223372036854775808").has_value());
  CHECK(unsigned_in("18446744073709551615") == UINT64_MAX);
  CHECK_FALSE(unsigned_in("-1").has_value());
  CHECK(real_in("1e3") == 1000.0);
  CHECK_FALSE(real_in("1e999").has_value());
}
