#pragma once

#include <memory>

#include "device/memory.h"

namespace lora_bench {

// A second stream of a device, for work beside that of a caller's stream: what is enqueued between
// fork and join may run at the same time. Both may be captured into a graph. On a host everything
// runs in turn.
class SideStream {
 public:
  explicit SideStream(Space space);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // The second stream, once all that is on `stream` has ended.
  [[nodiscard]] void* fork(void* stream);
  // What follows on `stream` waits for all that is on the second one.
  void join(void* stream);

 private:
  struct State;
  std::unique_ptr<State> state_;  // null on a host
};

}  // namespace lora_bench
