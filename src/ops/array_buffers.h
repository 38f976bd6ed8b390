#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/memory.h"
#include "ops/backend.h"
#include "workload/array_shape.h"

namespace lora_bench {

// The arrays of one launch of an op without products, each between guard bands.
class ArrayBuffers {
 public:
  using Contents = std::vector<std::vector<std::byte>>;  // of each array

  // `shifted`: no array is aligned to more than one entry.
  ArrayBuffers(Memory& memory, const ArrayShapes& inputs, const ArrayShapes& outputs,
               bool shifted = false);

  // In the order of the shapes.
  void put_inputs(Contents contents);
  void put_outputs(const Contents& contents);
  [[nodiscard]] Contents outputs() const;
  [[nodiscard]] const ArrayOperands& operands() const { return operands_; }

  // "guard of counts damaged: ..."; "" where all are whole.
  [[nodiscard]] std::string damage() const;
  // The first input that does not hold what was put there; "" = none.
  [[nodiscard]] std::string changed_input() const;

 private:
  struct Kept {
    std::string_view name;
    GuardedBuffer buffer;
  };
  std::vector<Kept> inputs_, outputs_;
  ArrayOperands operands_;
  Contents put_;
};

}  // namespace lora_bench
