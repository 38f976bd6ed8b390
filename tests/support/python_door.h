#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/need_numpy.h"
#include "support/process.h"
#include "support/skipped.h"

// Tests of backends in Python: an interpreter frees nothing when the program ends.
#define LORA_BENCH_NEED_PYTHON_DOOR(python)                                                       \
  if (lora_bench::test::tool_is_sanitized()) {                                                    \
    lora_bench::test::note_skipped("an interpreter inside the tool is no matter of a sanitizer"); \
    return;                                                                                       \
  }                                                                                               \
  LORA_BENCH_NEED_NUMPY(python)

namespace lora_bench::test {

inline ProcessResult run_with(const std::string& python, std::vector<std::string> arguments) {
  ProcessOptions options;
  options.environment["LORA_BENCH_PYTHON"] = python;
  return run_tool(std::move(arguments), options);
}

inline void replace(std::string& text, const std::string& line, const std::string& by) {
  const std::size_t at = text.find(line);
  REQUIRE(at != std::string::npos);
  text.replace(at, line.size(), by);
}

}  // namespace lora_bench::test
