#pragma once

#include <string>

namespace lora_bench {

// The linker's build id of the running program, which another content changes; "" where it has
// none.
[[nodiscard]] std::string executable_id();

}  // namespace lora_bench
