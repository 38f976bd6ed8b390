#pragma once

#include <atomic>

namespace lora_bench {

// SIGINT and SIGTERM ask the run to end after the row in hand; a second one ends the program at
// once. SIGPIPE and SIGXFSZ are ignored, so that a closed pipe or a full quota is met by the write
// and is not the end of the program. Call once, from main's thread.
void install_signal_handlers();
[[nodiscard]] bool interrupted();
// From now on the asking is kept there, where another process may see it and ask too.
void record_interrupt(std::atomic<bool>* record);

}  // namespace lora_bench
