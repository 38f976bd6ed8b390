#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "scenario/scenario.h"

// Whatever the text, it is a scenario or a UsageError, and neither takes long nor much memory.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  lora_bench::LoadOptions options;
  options.max_cases = 200;
  try {
    static_cast<void>(lora_bench::parse_scenario(text, "fuzz.yaml", options));
  } catch (const lora_bench::UsageError&) {
  }
  return 0;
}
