#pragma once

namespace lora_bench {

// SIGINT and SIGTERM ask the run to end after the row in hand; a second one ends the program at
// once. SIGPIPE and SIGXFSZ are ignored, so that a closed pipe or a full quota is met by the write
// and is not the end of the program. Call once, from main's thread.
void install_signal_handlers();
[[nodiscard]] bool interrupted();

}  // namespace lora_bench
