#pragma once

#include <filesystem>
#include <memory>

#include "report/sink.h"

namespace lora_bench {

// Every sample on a line of its own (tidy CSV): scenario,case,backend,repetition,sample,time_us.
[[nodiscard]] std::unique_ptr<Sink> make_samples_sink(const std::filesystem::path& path);

}  // namespace lora_bench
