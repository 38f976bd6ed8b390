#pragma once

#include <cstdint>
#include <vector>

#include "measure/measure.h"
#include "measure/operand_sets.h"
#include "measure/rotation.h"

namespace lora_bench {

// How the timed launches went round the sets since every output was as it was drawn.
struct Launched {
  std::int64_t rounds = 0;
  bool accumulates = false;  // else an output holds what its last launch wrote
};

// The sequence of launches that is timed, and the operands that it goes round. Knows how many
// launches have added to a y since it was as it was drawn, whoever ran them.
class TimedSequence {
 public:
  // All of these are used until the object goes. Throws CaseError where there is no room.
  TimedSequence(const MeasureRequest& request, const Backend& backend, Memory& memory, Clock& clock,
                const DeviceFacts& device);

  // Goes round the sets so often that a run is long against the clock. Both slots hold the same
  // sequence: A and A. A backend that is slow to launch is asked for each set's launch here alone.
  void load();
  // The same launches, each between two separators, into kAlone; y is then as it was drawn.
  void load_alone(const Launch& separator);
  // Before each run, outside of the timed window: no run finds the h of the one before nor, where
  // caches are to be cold, its operands, y does not grow without bound, and a backend that prepares
  // weights has done so.
  void prepare();

  // Runs what is loaded until the outputs tell whether all launches were made: a y that launches
  // add to is then as old as it ever was, since what is left out late may not show in one restored
  // a moment ago. An output that is overwritten tells nothing of its age, so there the sequence
  // runs once over a fresh one.
  [[nodiscard]] Launched run_to_check(int slot);
  // Runs once, in slot 0, another sequence that adds as much to y.
  void run_instead(std::vector<Launch> sequence);

  [[nodiscard]] Launch launch_of(std::int64_t set) const;
  // As many launches as are timed, in their order, beginning so that `last_set` is the last.
  [[nodiscard]] std::vector<Launch> sequence_to(std::int64_t last_set) const;
  [[nodiscard]] std::int64_t launches() const { return launches_; }
  // Whether launches add to what lies in y.
  [[nodiscard]] bool accumulates() const;

  [[nodiscard]] const MeasureRequest& request() const { return request_; }
  [[nodiscard]] const Problem& problem() const { return request_.problem; }
  [[nodiscard]] const Backend& backend() const { return backend_; }
  [[nodiscard]] Memory& memory() const { return memory_; }
  [[nodiscard]] Clock& clock() const { return clock_; }
  [[nodiscard]] Tensors& tensors() { return tensors_; }
  [[nodiscard]] OperandSets& sets() { return sets_; }

 private:
  void load(int slot, std::int64_t passes);
  [[nodiscard]] std::int64_t choose_passes();
  [[nodiscard]] std::int64_t launches_on_y() const { return launches_ / sets_.outputs(); }
  void prepare_others();

  const MeasureRequest& request_;
  const Backend& backend_;
  Memory& memory_;
  Clock& clock_;
  Tensors tensors_;
  OperandSets sets_;
  bool evicts_;
  Eviction eviction_;
  std::vector<Launch> kept_;  // of each set, where the backend is slow to launch
  std::int64_t launches_ = 1;
  std::int64_t accumulated_ = 0;  // launches that each y has taken since it was restored
  std::int64_t oldest_ = 0;       // the most of it
  std::int64_t others_ = 0;       // how often weights were prepared that nobody launches with
};

}  // namespace lora_bench
