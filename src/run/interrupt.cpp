#include "run/interrupt.h"

#include <atomic>
#include <csignal>

namespace lora_bench {
namespace {

std::atomic<bool> own_request{false};
std::atomic<std::atomic<bool>*> asked_to_end{&own_request};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch such a flag");

extern "C" void on_signal(int signal) {
  asked_to_end.load()->store(true);
  std::signal(signal, SIG_DFL);  // the next one ends the program
}

}  // namespace

void install_signal_handlers() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void record_interrupt(std::atomic<bool>* record) {
  // A signal that came before stays said.
  record->store(record->load() || interrupted());
  asked_to_end.store(record);
}

bool interrupted() { return asked_to_end.load()->load(); }

}  // namespace lora_bench
