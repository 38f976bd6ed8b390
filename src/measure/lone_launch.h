#pragma once

#include <cstdint>

#include "device/facts.h"
#include "device/memory.h"
#include "measure/operand_sets.h"
#include "measure/rotation.h"
#include "ops/backend.h"
#include "scenario/case.h"
#include "workload/tensors.h"

namespace lora_bench {

// One launch by itself, for whoever watches it, that finds the caches as one of a measurement does.
class LoneLaunch {
 public:
  // All of these are used until the object goes. Throws CaseError where there is no room.
  LoneLaunch(const Problem& problem, std::uint64_t seed, CacheMode cache, const Backend& backend,
             Memory& memory, const DeviceFacts& device);

  // Launches one set of operands after the other for a tenth of a second, until clocks, code and
  // address translation are as they are in a measurement.
  void warm_up();
  // Launches all sets but the one of launch(), which leaves its rotating operands cold, and the
  // others warm. Returns when the device has done it.
  void prepare();
  // Does not wait for the device.
  void launch() const;

 private:
  void launch(std::int64_t set) const;

  const Problem& problem_;
  const Backend& backend_;
  Memory& memory_;
  Tensors tensors_;
  OperandSets sets_;
  Eviction eviction_;
};

}  // namespace lora_bench
