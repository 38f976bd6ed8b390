#include "verify/mutant_stray.h"

#include <algorithm>
#include <cstddef>

#include "core/convert.h"

namespace lora_bench {
namespace {

struct Output {
  Dtype dtype = Dtype::kFp32;
  void* data = nullptr;
  std::int64_t elements = 0;
};

Output h_of(const Problem& problem, const Operands& operands) {
  return {problem.intermediate, operands.h, problem.slices() * problem.tokens * problem.max_rank};
}

Output output_of(const Problem& problem, const Operands& operands) {
  if (!has_expand(problem.op)) {
    return h_of(problem, operands);
  }
  return {problem.dtype, operands.y, problem.tokens * problem.y_stride};
}

void write_beside(const Output& output, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = 0; i < count && output.data != nullptr && output.elements > 0; ++i) {
    store(output.dtype, output.data, first + i, 1.0F);
  }
}

// The operands are const for a kernel that is right.
void change_first_byte(const void* input) {
  if (input != nullptr) {
    auto* bytes = static_cast<std::byte*>(const_cast<void*>(input));
    *bytes ^= std::byte{1};
  }
}

void clear_columns_outside(const Problem& problem, const Operands& operands) {
  std::int64_t last = problem.offset_start;
  for (const std::int64_t width : problem.widths) {
    last += width;
  }
  for (std::int64_t token = 0; token < problem.tokens; ++token) {
    for (std::int64_t column = 0; column < problem.y_stride; ++column) {
      if (column < problem.offset_start || column >= last) {
        store(problem.dtype, operands.y, token * problem.y_stride + column, 0.0F);
      }
    }
  }
}

// Where no result comes from: only the comparison of the inputs can tell.
void change_idle_row(const Problem& problem, const Operands& operands) {
  for (std::int64_t token = 0; token < problem.tokens && operands.x != nullptr; ++token) {
    if (operands.adapter_of_token[token] < 0) {
      const std::int64_t first = token * problem.x_stride * size_bytes(problem.dtype);
      change_first_byte(static_cast<const std::byte*>(operands.x) + first);
      return;
    }
  }
}

void change_weights(const Operands& operands) {
  for (const std::vector<const void*>* weights : {&operands.a, &operands.b}) {
    for (const void* slice : *weights) {
      if (slice != nullptr) {
        change_first_byte(slice);
        return;
      }
    }
  }
}

// Reachable for ever, as in a list of buffers that only grows.
void keep_memory() {
  struct Kept {
    Kept* before;
    std::byte bytes[1000];
  };
  static Kept* last = nullptr;
  last = new Kept{last, {}};
}

}  // namespace

void write_stray(const Problem& problem, const Operands& operands, Fault fault) {
  const Output output = output_of(problem, operands);
  const Output h = h_of(problem, operands);
  switch (fault) {
    case Fault::kColumnsOutsideWritten:
      if (has_expand(problem.op)) {
        clear_columns_outside(problem, operands);
      }
      break;
    case Fault::kOnePastTheEnd:
      write_beside(output, output.elements, 1);
      break;
    case Fault::kOneBeforeTheStart:
      write_beside(output, -1, 1);
      break;
    case Fault::kRowTooMany:
      write_beside(output, output.elements, std::min<std::int64_t>(16, problem.y_stride));
      break;
    case Fault::kHPastTheEnd:
      write_beside(h, h.elements, problem.max_rank);
      break;
    case Fault::kXChanged:
      change_idle_row(problem, operands);
      break;
    case Fault::kWeightsChanged:
      change_weights(operands);
      break;
    case Fault::kMemoryKept:
      keep_memory();
      break;
    default:
      break;
  }
}

}  // namespace lora_bench
