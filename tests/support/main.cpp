#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "support/skipped.h"

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;  // SKIP_RETURN_CODE of CTest
  const int failed = doctest::Context(argc, argv).run();
  return failed == 0 && lora_bench::test::skipped_tests() > 0 ? kSkipped : failed;
}
