#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "measure/measure.h"
#include "measure/operand_sets.h"

namespace lora_bench {

// Runs the timed sequence again, recorded anew, with a copy of a piece of the output before and
// after each launch that is looked at, and holds the pieces against the oracle. Which launches,
// rows and columns follow from `secret`. Nothing else changes for the backend where the next launch
// of an output has other weights; where it has the same, the row that is looked at has the other
// sign for that launch, so that what the launch before left is no answer.
class SingleLaunchLooks {
 public:
  // What the looks need of the measurement. `run` loads the sequence and runs it once.
  struct Bench {
    const MeasureRequest& request;
    const Tensors& tensors;
    const OperandSets& sets;
    Memory& memory;
    std::int64_t launches = 1;
    std::function<Launch(std::int64_t set)> launch_of;
    std::function<void(std::vector<Launch> sequence)> run;
    std::function<double()> seconds;  // since some start
  };
  SingleLaunchLooks(Bench bench, std::uint64_t secret);

  // Until enough was seen or it has taken as long as it may.
  [[nodiscard]] SingleLaunches look();

  // At one launch of a run: elements `first` on of one row of one slice.
  struct Piece {
    std::int64_t position = 0;  // in the sequence
    std::int64_t set = 0, row = 0, slot = 0, slice = 0, first = 0, count = 0;
    bool negated = false;     // the row of x, or of a given h
    std::int64_t logged = 0;  // where in the log it begins, in bytes
  };

 private:
  struct Log {
    std::vector<std::byte> before, after;
  };

  [[nodiscard]] std::vector<std::int64_t> drawn_positions(std::uint64_t run) const;
  [[nodiscard]] std::vector<Piece> drawn_pieces(std::uint64_t run) const;
  void draw_place(Piece& piece, std::uint64_t run) const;
  void draw_signs(std::vector<Piece>& pieces) const;
  [[nodiscard]] Log run(const std::vector<Piece>& pieces) const;
  [[nodiscard]] Launch looked_at(const Piece& piece, std::byte* before, std::byte* after,
                                 const std::byte* rows) const;
  [[nodiscard]] std::vector<std::byte> rows_of(const std::vector<Piece>& pieces) const;
  [[nodiscard]] Look compare(const std::vector<Piece>& pieces, const Log& log) const;

  [[nodiscard]] std::int64_t input_row_bytes() const;
  [[nodiscard]] std::int64_t input_offset(const Piece& piece) const;   // bytes
  [[nodiscard]] std::int64_t output_offset(const Piece& piece) const;  // bytes
  [[nodiscard]] std::int64_t output_bytes(const Piece& piece) const;

  Bench bench_;
  std::uint64_t secret_;
  std::vector<std::int64_t> rows_;    // that the op writes
  std::vector<std::int64_t> slices_;  // that have columns
};

}  // namespace lora_bench
