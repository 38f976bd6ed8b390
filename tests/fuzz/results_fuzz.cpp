#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "report/sink.h"

// The reader takes a text or refuses it with a UsageError; anything else is a defect.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    static_cast<void>(lora_bench::parse_results(text, "fuzz.jsonl"));
  } catch (const lora_bench::UsageError&) {
    return 0;
  }
  return 0;
}
