#include "verify/mutant_values.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/dtype.h"

namespace lora_bench {
namespace {

struct Output {
  Dtype dtype = Dtype::kFp32;
  void* data = nullptr;
  std::int64_t elements = 0;
};

Output h_of(const Problem& problem, const Operands& operands) {
  return {problem.dtype[Role::kH], operands.h,
          problem.slices() * problem.tokens * problem.max_rank};
}

Output output_of(const Problem& problem, const Operands& operands) {
  if (!has_expand(problem.op)) {
    return h_of(problem, operands);
  }
  return {problem.dtype[Role::kY], operands.y, problem.tokens * problem.y_stride};
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
        store(problem.dtype[Role::kY], operands.y, token * problem.y_stride + column, 0.0F);
      }
    }
  }
}

// Where no result comes from: only the comparison of the inputs can tell.
void change_idle_row(const Problem& problem, const Operands& operands) {
  for (std::int64_t token = 0; token < problem.tokens && operands.x != nullptr; ++token) {
    if (operands.adapter_of_token[token] < 0) {
      const std::int64_t first = operands.x_row(problem, 0, token) * problem.x_stride *
                                 size_bytes(problem.dtype[Role::kX]);
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

void keep_mapping() {
  static_cast<void>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

// No more than a process may have that goes on to other mutants.
// Of rows of an h that shrink is to add to, where no adapter has a lane.
void add_to_other_lanes(const Problem& problem, const Operands& operands, bool base_rows) {
  for (std::int64_t row = 0; row < problem.slices() * problem.tokens; ++row) {
    const std::int32_t adapter = operands.adapter_of_token[row % problem.tokens];
    std::int64_t lane = base_rows || adapter < 0 ? 0 : operands.rank[adapter];
    for (; lane < problem.max_rank && (adapter < 0) == base_rows; ++lane) {
      const std::int64_t at = row * problem.max_rank + lane;
      const float given = load(problem.dtype[Role::kH], operands.h, at);
      store(problem.dtype[Role::kH], operands.h, at, given + 1);
    }
  }
}

void keep_descriptor() {
  constexpr std::size_t kMost = 400;
  static std::vector<int> kept;
  if (kept.size() == kMost) {
    std::for_each(kept.begin(), kept.end(), ::close);
    kept.clear();
  }
  kept.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

// A volatile pointer, so that both writes are made.
void write_and_put_back(const void* input, std::int64_t byte) {
  if (input != nullptr) {
    volatile auto* const bytes =
        static_cast<volatile unsigned char*>(const_cast<void*>(input)) + byte;
    const unsigned char before = *bytes;
    *bytes = static_cast<unsigned char>(before ^ 1U);
    *bytes = before;
  }
}

void put_back(const Problem& problem, const Operands& operands, Fault fault) {
  const Output output = output_of(problem, operands);
  constexpr std::int64_t kPage = 4096;
  switch (fault) {
    case Fault::kXPutBack:
      write_and_put_back(operands.x, 0);
      break;
    case Fault::kWeightsPutBack:
      write_and_put_back(has_shrink(problem.op) ? operands.a[0] : operands.b[0], 0);
      break;
    case Fault::kPlanPutBack:
      write_and_put_back(operands.adapter_of_token, 0);
      break;
    case Fault::kScalePutBack:
      write_and_put_back(operands.scale, 0);
      break;
    case Fault::kBeforeTheStartPutBack:
      write_and_put_back(output.data, -1);
      break;
    case Fault::kFarPastTheEndPutBack:
      write_and_put_back(output.data, output.elements * size_bytes(output.dtype) + kPage - 1);
      break;
    default:
      break;
  }
}

}  // namespace

void keep_when_asked(Fault fault) {
  switch (fault) {
    case Fault::kMemoryKeptWhenAsked:
      keep_memory();
      break;
    case Fault::kMappingKeptWhenAsked:
      keep_mapping();
      break;
    case Fault::kDescriptorKeptWhenAsked:
      keep_descriptor();
      break;
    default:
      break;
  }
}

void write_stray(const Problem& problem, const Operands& operands, Fault fault) {
  const Output output = output_of(problem, operands);
  const Output h = h_of(problem, operands);
  switch (fault) {
    case Fault::kColumnsOutsideWritten:
      if (has_expand(problem.op)) {
        clear_columns_outside(problem, operands);
      }
      break;
    case Fault::kLanesAboveRankAddedTo:
    case Fault::kBaseRowsOfHAddedTo:
      if (problem.adds_to_h()) {
        add_to_other_lanes(problem, operands, fault == Fault::kBaseRowsOfHAddedTo);
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
      // A whole row of a high rank would reach past the guard band.
      write_beside(h, h.elements, std::min<std::int64_t>(16, problem.max_rank));
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
    case Fault::kMappingKept:
      keep_mapping();
      break;
    case Fault::kDescriptorKept:
      keep_descriptor();
      break;
    default:
      put_back(problem, operands, fault);
      break;
  }
}

}  // namespace lora_bench
