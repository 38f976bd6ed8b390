#pragma once

#include <memory>

#include "device/memory.h"
#include "ops/backend.h"

namespace lora_bench {

// Other work of the device, recorded beside a launch: it holds some multiprocessors for some
// microseconds, others in every run, so that the blocks of the launch meet in another order. It
// ends by itself. Nothing on a host.
class Load {
 public:
  explicit Load(Memory& memory);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // What is enqueued between the two runs beside the load; after `end` it waits for it.
  void begin(Stream stream);
  void end(Stream stream);

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

}  // namespace lora_bench
