#include "support/golden.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

void check_golden(const std::string& name, const std::string& got) {
  const std::string path = std::string(LORA_BENCH_SOURCE_DIR) + "/tests/golden/" + name;
  if (std::getenv("LORA_BENCH_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << got;
    return;
  }
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(),
                  "no golden file " << path << "; make it with LORA_BENCH_UPDATE_GOLDEN=1");
  std::istringstream actual(got);
  std::string wanted_line;
  std::string got_line;
  for (int line = 1;; ++line) {
    const bool wanted_more = static_cast<bool>(std::getline(file, wanted_line));
    const bool got_more = static_cast<bool>(std::getline(actual, got_line));
    INFO(path << ":" << line);
    REQUIRE(wanted_more == got_more);
    if (!wanted_more) {
      return;
    }
    REQUIRE(got_line == wanted_line);
  }
}
