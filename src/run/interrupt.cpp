#include "run/interrupt.h"

#include <atomic>
#include <csignal>

namespace lora_bench {
namespace {

std::atomic<bool> asked_to_end{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch such a flag");

extern "C" void on_signal(int signal) {
  asked_to_end.store(true);
  std::signal(signal, SIG_DFL);  // the next one ends the program
}

}  // namespace

void install_signal_handlers() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

bool interrupted() { return asked_to_end.load(); }

}  // namespace lora_bench
