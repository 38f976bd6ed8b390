#include "run/isolated_backend.h"

namespace lora_bench {
namespace {

// Of a process that starts and, perhaps, finds a GPU. What a plugin itself may take is less, and
// known to its process.
constexpr double kMostSecondsOfLoading = 120;

}  // namespace

IsolatedBackend::IsolatedBackend(const std::vector<std::string>& command)
    : child_(command), hello_(child_.answer(kMostSecondsOfLoading)) {}

std::string IsolatedBackend::why_not_here() const {
  return hello_.kind == 's' ? hello_.text.substr(hello_.text.find(' ') + 1) : "";
}

Answer IsolatedBackend::ask(const std::string& request) {
  if (hello_.kind != 's') {
    return hello_;
  }
  child_.request(request);
  ++asked_;
  return child_.answer(std::nullopt);
}

}  // namespace lora_bench
