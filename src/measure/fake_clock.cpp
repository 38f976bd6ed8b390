#include "measure/fake_clock.h"

#include <stdexcept>

namespace lora_bench {

void FakeClock::load(int slot, std::vector<Launch> sequence) {
  slots_[slot].sequence = std::move(sequence);
}

double FakeClock::run_seconds(int slot) {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) {
    throw std::logic_error("clock: nothing is loaded in this slot");
  }
  Slot& loaded = found->second;
  for (const Launch& launch : loaded.sequence) {
    launch(Stream{});
  }
  const double seconds = script_(slot, loaded.runs++) * static_cast<double>(loaded.sequence.size());
  now_seconds_ += seconds;
  return seconds;
}

std::int64_t FakeClock::runs(int slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? 0 : found->second.runs;
}

std::int64_t FakeClock::launches(int slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? 0 : static_cast<std::int64_t>(found->second.sequence.size());
}

}  // namespace lora_bench
