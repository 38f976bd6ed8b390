#include "run/target.h"

namespace lora_bench {

const DeviceFacts& Targets::facts(Space space) {
  Entry& found = entry(space);
  if (!found.facts) {
    found.facts = space == Space::kHost ? cpu_facts() : gpu_facts();
  }
  return *found.facts;
}

std::shared_ptr<Memory> Targets::memory(Space space) {
  Entry& found = entry(space);
  if (!found.memory) {
    found.memory = space == Space::kHost ? make_host_memory()
                   : mirrored_           ? make_mirrored_memory(make_device_memory())
                                         : make_device_memory();
  }
  return found.memory;
}

std::shared_ptr<const GpuGroup> Targets::gpus(std::int64_t count) {
  std::shared_ptr<const GpuGroup>& found = groups_[count].gpus;
  if (!found) {
    found = std::make_shared<const GpuGroup>(count);
  }
  return found;
}

const Ceilings& Targets::ceilings(Space space) {
  Entry& found = entry(space);
  if (!found.ceilings) {
    found.ceilings = obtain_ceilings(facts(space), false);
  }
  return *found.ceilings;
}

bool Targets::doubt_ceilings(Space space) {
  constexpr int kMostDoubts = 2;
  Entry& found = entry(space);
  if (found.doubts == kMostDoubts) {
    return false;
  }
  ++found.doubts;
  found.ceilings = raise_ceilings(facts(space), ceilings(space));
  return true;
}

}  // namespace lora_bench
