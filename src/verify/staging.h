#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/memory.h"
#include "ops/backend.h"
#include "ops/backends.h"
#include "ops/operand_set.h"
#include "workload/tensors.h"

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

// What one kernel of an engine leaves for the next one.
struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::int64_t bytes = 0;
};

// Enqueues the copies, at most three, as late as they may be: on a device one kernel makes them
// that lets the launch after it start early and itself writes nothing for a while. On a host they
// are made at once.
void enqueue_late_copies(Memory& memory, const std::vector<Copy>& copies, Stream stream);

// A set of operands and what launches of it leave there: y starts as the tensors have it, with or
// without add_inputs.
class Stage {
 public:
  // `problem` and `tensors` must outlive the stage, or the next reload.
  Stage(Memory& memory, const Problem& problem, const Tensors& tensors, const ScratchBytes& scratch,
        Alignment alignment = Alignment::kBoundary, PlanRoom plan_room = PlanRoom::kExact,
        std::uint64_t draw = 0);

  // Another step in the same buffers: h and the workspace keep what the launches before left there.
  // Sizes of x, h, y and the weights must be the same.
  void reload(const Problem& problem, const Tensors& tensors);
  // Another set of rows, h and workspace of the same step, which shares the rest with this one.
  [[nodiscard]] Stage again() const;
  // From now on h, where it is scratch, and the workspace are those of the other stage, which has
  // room for them.
  void share_scratch(const Stage& other) { set_.share_scratch(other.set_); }
  // The inputs of the step but for the plan, those of all slices as one: "x", "a", "scale".
  [[nodiscard]] std::vector<std::string> inputs() const;
  // The inputs of this name become those of `tensors`.
  void change(std::string_view input, const Tensors& tensors);
  // y as the tensors have it, h of a shrink too if it is added to, else as `Tensors::scratch` says:
  // nothing that an earlier launch wrote remains.
  void restore_output();
  // The same, and x, or an h that is an input: a follower's take their place.
  void restore_rows();

  // Launches, waits, and lets what the backend throws pass.
  void launch(const Backend& backend);
  // Launches and does not wait.
  void enqueue(const Backend& backend, Stream stream) const {
    backend.launch(*problem_, set_.operands(), stream);
  }
  // The same while it is watched, on a host, who writes what is not to be written, prepared weights
  // among it. A write within the page in which an operand ends shows only where it is not put back.
  // Weights are prepared once before it, at other addresses, where the launch would find NaN.
  struct Touched {
    std::string input;    // the first input that was written; "" = none
    std::string outside;  // "memory before y", or behind it
    std::string damage;   // of the guards where weights were prepared
  };
  [[nodiscard]] Touched launch_watched(const Backend& backend);
  // Records the launch of the step at hand, which must outlive what is returned: that runs it over
  // what the buffers hold then. `beside` is recorded with it.
  [[nodiscard]] std::function<void()> record(const Backend& backend, Load* beside = nullptr);

  // Another step of the same plan and weights that follows the one at hand on its stream, without
  // the host between them.
  struct Follower {
    std::vector<GuardedBuffer> contents;  // its x, h and y, until a kernel puts them in place
    std::vector<Copy> in_place;
    GuardedBuffer output;  // what the launch after the step finds of its output
  };
  [[nodiscard]] Follower follower(const Tensors& tensors) const;
  // Enqueues the launch of the step at hand, the copies that put the follower in place, its launch,
  // and a copy of its output, the last three beside the load.
  void enqueue_both(const Backend& backend, const Follower& follower, Load& load,
                    Stream stream) const;

  [[nodiscard]] std::vector<std::byte> output() const;  // y, or h for shrink, as tensors have it
  // The same of bytes that a follower's output has.
  [[nodiscard]] std::vector<std::byte> output_of(std::vector<std::byte> buffer) const {
    return set_.output_of(std::move(buffer));
  }
  // "" if all guard bands are intact, else "guard of y damaged: ...".
  [[nodiscard]] std::string damage() const;
  // Both and whether all inputs have the bytes that were staged, with as few copies as there can
  // be. A look of before, at this stage or another, lends its arrays.
  struct Look {
    std::vector<std::byte> output;
    std::string damage;
    std::string changed_input;     // "" or "input x changed"
    std::vector<std::byte> input;  // one that was compared
  };
  [[nodiscard]] Look look(Look before = {}) const;

 private:
  void upload(const HeldOperand& held, const Tensors& tensors);
  // Returns what was prepared from, with NaN in its weights; nothing of a backend that prepares
  // none.
  [[nodiscard]] std::optional<OperandSet> prepare_elsewhere(const Backend& backend);
  [[nodiscard]] Touched watch_launch(const Backend& backend);

  Memory* memory_;
  const Problem* problem_;
  const Tensors* tensors_;
  OperandSet set_;
};

}  // namespace lora_bench
