#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "workload/tensors.h"

namespace lora_bench {

// Neighbouring elements of an operand, and where they lie in its buffer.
struct StoredRun {
  std::int64_t from = 0;  // in the operand as tensors have it
  std::int64_t to = 0;    // in the buffer
  std::int64_t count = 0;
};

// One operand, or a slice of it, in a buffer.
struct StoredPart {
  Operand operand;
  std::int64_t first = 0;  // the element of the buffer that a launch is given the address of
  std::int64_t column_stride = 1;  // between the elements of a run
  std::vector<StoredRun> runs;
};

// What one buffer holds of a step whose layout is not plain. Elements that no run covers belong to
// nobody.
struct StoredOperand {
  Operand whole;  // role, dtype and what is said of it; slice -1 where it has all; one dimension
  std::vector<StoredPart> parts;
  bool as_tensor = true;  // one part, which lies as tensors have it and has no runs
  // Of h: lanes of a row that a launch may write, and elements from a row to the next.
  std::int64_t lanes = 0, pitch = 0;
};

// All operands of a step in the order of operands_of, those of one buffer at the place of the
// first. Throws CaseError where a buffer has more bytes than 64 bits can count.
[[nodiscard]] std::vector<StoredOperand> stored_operands(const Problem& problem);

// The bytes of a buffer whose gaps hold `gap`.
[[nodiscard]] std::vector<std::byte> stored_bytes(const StoredOperand& stored,
                                                  const Tensors& tensors, std::byte gap);
// The bytes of an h whose lanes hold `lanes` and whose gaps hold `gap`.
[[nodiscard]] std::vector<std::byte> bytes_with_gaps(const StoredOperand& h, std::byte lanes,
                                                     std::byte gap);
// The operand of a buffer with one part as tensors have it; what no run covers holds `gap`.
[[nodiscard]] std::vector<std::byte> tensor_bytes_of(const StoredOperand& stored,
                                                     std::span<const std::byte> buffer,
                                                     std::byte gap);
// The first row of h behind whose lanes, in front of the next row, something else than `gap` lies;
// -1: none.
[[nodiscard]] std::int64_t row_with_written_gap(const StoredOperand& h,
                                                std::span<const std::byte> buffer, std::byte gap);

}  // namespace lora_bench
