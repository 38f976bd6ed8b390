#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/named.h"
#include "layers/communicator.h"
#include "measure/clock.h"
#include "ops/backend.h"

namespace lora_bench {

// What a backend was asked to do last. --isolate keeps the record in memory that outlives the
// process, to say where it crashed.
enum class Call : std::uint32_t {
  kNone,
  kLoading,
  kSupports,
  kNumerics,
  kWorkspace,
  kLaunch,
  kWait
};
template <>
struct EnumNames<Call> {
  static constexpr std::array<std::string_view, 8> kNames{
      "the tool itself",      "loading", "supports", "numerics", "workspace_bytes", "launch",
      "waiting for its work", ""};
};
using CallRecord = std::atomic<std::uint32_t>;
void record_calls(CallRecord* record);

class CallInHand {
 public:
  explicit CallInHand(Call call);
  ~CallInHand();
  CallInHand(const CallInHand&) = delete;
  CallInHand& operator=(const CallInHand&) = delete;

 private:
  std::uint32_t before_;
};

// When the backend was last entered without having come back. Only time inside the backend (or
// waiting for its device) counts: a slow oracle is not a hung kernel.
class Pulse {
 public:
  [[nodiscard]] static std::int64_t now_ns();
  // Calls nest (a clock that launches): the outermost entry counts. `enter` returns what `leave`
  // restores.
  [[nodiscard]] std::int64_t enter();
  void leave(std::int64_t before) { entered_ns_.store(before); }
  // Seconds inside; 0 when outside.
  [[nodiscard]] double seconds_inside() const;
  // Seconds of the host in the first launch of a backend, which compiles and loads what it has not
  // yet; none when nothing was launched.
  [[nodiscard]] std::optional<double> first_launch_seconds() const;
  void note_launch(std::int64_t begun_ns);

 private:
  std::atomic<std::int64_t> entered_ns_{0};
  std::atomic<std::int64_t> first_launch_ns_{-1};
};

// The same backend, memory, clock and communicator, with every call that may hang stamped in the
// pulse.
[[nodiscard]] std::shared_ptr<const Backend> watched(std::shared_ptr<const Backend> backend,
                                                     std::shared_ptr<Pulse> pulse);
[[nodiscard]] std::shared_ptr<Memory> watched(std::shared_ptr<Memory> memory,
                                              std::shared_ptr<Pulse> pulse);
[[nodiscard]] std::shared_ptr<Clock> watched(std::shared_ptr<Clock> clock,
                                             std::shared_ptr<Pulse> pulse);
[[nodiscard]] std::shared_ptr<Communicator> watched(std::shared_ptr<Communicator> communicator,
                                                    std::shared_ptr<Pulse> pulse);

// Runs `work` on a thread of its own until it ends or the pulse stays inside for longer than
// `timeout_s`. What `work` throws is thrown here. On a time-out the thread is abandoned (nothing
// can stop a hung kernel) and everything it captured stays alive: capture shared pointers only.
enum class Ended : std::uint8_t { kReturned, kHung };
[[nodiscard]] Ended run_watched(std::function<void()> work, const Pulse& pulse, double timeout_s);

// The same for work that ends by itself, but not soon enough for somebody who asked to end: false
// when it was abandoned because of that.
[[nodiscard]] bool run_unless(const std::function<bool()>& stop, std::function<void()> work);

// Whether any thread was abandoned: the program must then leave without running destructors.
[[nodiscard]] bool any_abandoned();

// SIGINT and SIGTERM ask the run to end after the row in hand; a second one ends the program at
// once. SIGPIPE and SIGXFSZ are ignored, so that a closed pipe or a full quota is met by the write
// and is not the end of the program. Call once, from main's thread.
void install_signal_handlers();
[[nodiscard]] bool interrupted();
// From now on the asking is kept there, where another process may see it and ask too.
void record_interrupt(std::atomic<bool>* record);

}  // namespace lora_bench
