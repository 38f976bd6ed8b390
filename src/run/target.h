#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "device/facts.h"
#include "device/gpu_group.h"
#include "device/memory.h"
#include "layers/communicator.h"
#include "measure/ceilings.h"
#include "measure/clock.h"

namespace lora_bench {

// The machine as backends of each space see it: its memory, what it is, what it can do at best.
// Made on first use, so that a run on the CPU alone never touches a GPU and a run that times
// nothing measures no ceilings.
class Targets {
 public:
  Targets() = default;
  // `mirrored`: small buffers of a GPU stand side by side with their image on the host, see
  // device/memory.h.
  explicit Targets(bool mirrored) : mirrored_(mirrored) {}

  // Throws EnvironmentError when the space cannot be used here.
  [[nodiscard]] const DeviceFacts& facts(Space space);
  [[nodiscard]] std::shared_ptr<Memory> memory(Space space);
  // So many GPUs that work together, and what their shards exchange through; null until somebody
  // has put it here, since making it may hang.
  [[nodiscard]] std::shared_ptr<const GpuGroup> gpus(std::int64_t count);
  [[nodiscard]] std::shared_ptr<Communicator>& communicator(std::int64_t gpus) {
    return groups_[gpus].communicator;
  }
  [[nodiscard]] const Ceilings& ceilings(Space space);
  // A time below the ceilings speaks against one of the two: measures them once more. False when
  // that was done often enough to believe them.
  [[nodiscard]] bool doubt_ceilings(Space space);

 private:
  struct Entry {
    std::optional<DeviceFacts> facts;
    std::shared_ptr<Memory> memory;
    std::optional<Ceilings> ceilings;
    int doubts = 0;
  };
  [[nodiscard]] Entry& entry(Space space) { return space == Space::kHost ? host_ : device_; }

  struct Group {
    std::shared_ptr<const GpuGroup> gpus;
    std::shared_ptr<Communicator> communicator;
  };

  bool mirrored_ = false;
  std::map<std::int64_t, Group> groups_;
  Entry host_;
  Entry device_;
};

}  // namespace lora_bench
