#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure/measure.h"
#include "measure/operand_sets.h"
#include "measure/timed_sequence.h"

namespace lora_bench {

// Rows of an output for which so many cores soon have what the oracle says. However dear a row is,
// there are some: an output of which none is looked at would pass unseen.
[[nodiscard]] std::int64_t affordable_rows(std::int64_t products_of_row, std::int64_t cores);

// Looks at what the timed launches left, where no backend can know that it will look: rows and sets
// follow from `secret`, which is drawn after timing.
class AfterTiming {
 public:
  // `room` takes the output that was looked at last.
  AfterTiming(const MeasureRequest& request, OperandSets& sets, std::uint64_t secret,
              std::vector<std::byte>& room)
      : request_(request), sets_(sets), secret_(secret), room_(room) {}

  // Every output, on some rows with the oracle, whole for what nobody owns and what is no number;
  // guards and inputs. "" or what is wrong.
  [[nodiscard]] std::string left_by(const Tensors& tensors, const Launched& launched) const;
  // One output, to which one launch of `set` added, on these rows.
  [[nodiscard]] std::string left_by_one(const Tensors& tensors, std::int64_t set,
                                        std::vector<std::int64_t> rows) const;
  // Rows that the op owns.
  [[nodiscard]] std::vector<std::int64_t> few_rows() const;
  [[nodiscard]] std::vector<std::int64_t> many_rows() const;
  // These rows of the output of `set`, to which `rounds` launches of it added and no other did.
  [[nodiscard]] Look left_by_replay(const Tensors& tensors, std::int64_t set, std::int64_t rounds,
                                    const std::vector<std::int64_t>& rows) const;
  [[nodiscard]] std::vector<std::int64_t> rows_of_replay(std::int64_t turn) const;
  [[nodiscard]] std::int64_t any_set(std::int64_t turn = 0) const;
  // From 1 to below `past`.
  [[nodiscard]] std::int64_t any_place(std::int64_t past) const;
  [[nodiscard]] std::uint64_t secret() const { return secret_; }
  [[nodiscard]] std::vector<std::byte>& last_output() const { return room_; }

 private:
  [[nodiscard]] std::vector<std::int64_t> any_rows(std::uint64_t stream, std::int64_t most) const;
  [[nodiscard]] std::int64_t rows_of_output() const;
  [[nodiscard]] Look check_rows(const Tensors& tensors, const std::vector<std::int64_t>& of_sets,
                                std::int64_t rounds, std::vector<std::int64_t> rows) const;
  [[nodiscard]] std::string check_whole(const Tensors& tensors, std::int64_t output,
                                        const std::vector<std::int64_t>& of_sets,
                                        std::int64_t rounds, std::vector<std::int64_t> rows) const;
  [[nodiscard]] std::string check_output(const Tensors& tensors, std::int64_t output,
                                         const Launched& launched) const;

  const MeasureRequest& request_;
  OperandSets& sets_;
  std::uint64_t secret_;
  std::vector<std::byte>& room_;
  mutable std::vector<Tensors> cut_;  // the rows that were looked at last, for their memory
};

// What looks at single launches need of a sequence that was timed.
struct SequenceToLookAt {
  const MeasureRequest& request;
  const Tensors& tensors;
  const OperandSets& sets;
  Memory& memory;
  std::int64_t launches = 1;
  std::function<Launch(std::int64_t set)> launch_of;
  std::function<void(std::vector<Launch> sequence)> run;  // loads a sequence and runs it once
  std::function<double()> seconds;                        // since some start
};
// Which launches, rows and columns are looked at follows from `secret`.
[[nodiscard]] SingleLaunches look_at_single_launches(const SequenceToLookAt& timed,
                                                     std::uint64_t secret);

// Looks at single launches, runs the sequence on numbers that tell more, and launches on others at
// the same addresses, for what a backend may have left out or remembered. Fills `single` and
// `replayed` of what was measured; "" or what is wrong.
[[nodiscard]] std::string wrong_when_run_again(TimedSequence& timed, const AfterTiming& after,
                                               Measurement& into);

}  // namespace lora_bench
