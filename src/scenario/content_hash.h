#pragma once

#include <cstdint>
#include <vector>

#include "scenario/case.h"

namespace lora_bench {

// FNV-1a over what the cases are, whatever their file looks like.
[[nodiscard]] std::uint64_t content_hash(const std::vector<Case>& cases);

}  // namespace lora_bench
