#include "workload/stored.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/units.h"

namespace lora_bench {
namespace {

std::int64_t product_of(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    const auto checked = checked_multiply(product, factor);
    if (!checked) {
      throw CaseError("a buffer has more bytes than 64 bits can count");
    }
    product = *checked;
  }
  return product;
}

std::int64_t columns_before(const Problem& problem, std::int64_t slice) {
  return std::accumulate(problem.widths.begin(), problem.widths.begin() + slice, std::int64_t{0});
}

// Of A, B and bias: one run a row, which is a lane, an output or all outputs of a slot.
std::vector<StoredRun> runs_of_weights(const Problem& problem, const Operand& operand) {
  const std::int64_t slice = operand.slice;
  const std::int64_t width = problem.widths[static_cast<std::size_t>(slice)];
  std::vector<StoredRun> runs;
  for (std::int64_t slot = 0; slot < problem.slots; ++slot) {
    const std::int64_t rank = problem.rank[static_cast<std::size_t>(slot)];
    switch (operand.role) {
      case Role::kA:
        for (std::int64_t lane = 0; lane < (problem.packed() ? rank : problem.max_rank); ++lane) {
          runs.push_back({(slot * problem.max_rank + lane) * problem.in_features,
                          problem.a_at(slice, slot, rank, lane), problem.in_features});
        }
        break;
      case Role::kB:
        for (std::int64_t output = 0; output < width; ++output) {
          runs.push_back({(slot * width + output) * problem.max_rank,
                          problem.b_at(slice, slot, output), problem.max_rank});
        }
        break;
      default:
        runs.push_back({slot * width, problem.bias_at(slice, slot, 0), width});
    }
  }
  return runs;
}

// Where the first slot of a slice begins in the buffer of all slices.
std::int64_t first_of_slice(const Problem& problem, const Operand& operand) {
  if (problem.separate()) {
    return 0;
  }
  switch (operand.role) {
    case Role::kA:
      return problem.packed() ? 0 : operand.slice * problem.max_rank * problem.a_pitch();
    case Role::kB:
      return columns_before(problem, operand.slice) * problem.b_pitch();
    default:
      return columns_before(problem, operand.slice);
  }
}

std::int64_t elements_of_weights(const Problem& problem, const Operand& operand) {
  switch (operand.role) {
    case Role::kA:
      return product_of({problem.slots, problem.lanes_together(), problem.a_pitch()});
    case Role::kB:
      return product_of({problem.slots, problem.outputs_of_slot(operand.slice), problem.b_pitch()});
    default:
      return product_of({problem.slots, problem.outputs_of_slot(operand.slice)});
  }
}

std::vector<StoredRun> runs_of_rows(const Problem& problem, const Operand& operand) {
  std::vector<StoredRun> runs;
  if (operand.role == Role::kX) {
    for (std::int64_t slice = 0; slice < (problem.own_inputs() ? problem.slices() : 1); ++slice) {
      for (std::int64_t row = 0; row < problem.x_rows(); ++row) {
        const std::int64_t first = (slice * problem.x_rows() + row) * problem.x_stride;
        runs.push_back({first, first, problem.in_features});
      }
    }
    return runs;
  }
  for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
    for (std::int64_t token = 0; token < problem.tokens; ++token) {
      const std::int32_t adapter = problem.plan.adapter_of_token[static_cast<std::size_t>(token)];
      const std::int64_t rank = adapter < 0 ? 0 : problem.rank[static_cast<std::size_t>(adapter)];
      runs.push_back({(slice * problem.tokens + token) * problem.max_rank,
                      problem.h_at(slice, token, rank, 0),
                      problem.packed() ? rank : problem.max_rank});
    }
  }
  return runs;
}

bool lies_plainly(const Problem& problem, Role role) {
  const Layout& layout = problem.layout;
  switch (role) {
    case Role::kX:
      return layout.x_column_stride == 1;
    case Role::kA:
      return problem.separate() && layout.a_gap == 0;
    case Role::kB:
      return problem.separate() && layout.b_gap == 0;
    case Role::kBias:
      return problem.separate();
    case Role::kH:
      return problem.separate() && layout.h_gap == 0;
    case Role::kY:
    case Role::kAScale:
    case Role::kBScale:
    case Role::kXScale:
    case Role::kHScale:
    case Role::kFactor:
      return true;
  }
  return true;
}

StoredOperand stored_of(const Problem& problem, const Operand& operand) {
  StoredOperand stored{.whole = operand, .parts = {{operand, 0, 1, {}}}};
  if (operand.elements == 0 || lies_plainly(problem, operand.role)) {
    return stored;
  }
  stored.as_tensor = false;
  StoredPart& part = stored.parts.front();
  if (operand.per_slot) {
    stored.whole.elements = elements_of_weights(problem, operand);
    part.first = first_of_slice(problem, operand);
    part.runs = runs_of_weights(problem, operand);
    for (StoredRun& run : part.runs) {
      run.to += part.first;
    }
  } else if (operand.role == Role::kX) {
    part.column_stride = problem.layout.x_column_stride;
    part.runs = runs_of_rows(problem, operand);
  } else {
    stored.lanes = problem.lanes_together();
    stored.pitch = problem.h_pitch();
    const std::int64_t rows = (problem.separate() ? problem.slices() : 1) * problem.tokens;
    stored.whole.elements = product_of({rows, stored.pitch});
    part.runs = runs_of_rows(problem, operand);
  }
  stored.whole.shape = {stored.whole.elements};
  static_cast<void>(product_of({stored.whole.elements, size_bytes(operand.dtype)}));
  return stored;
}

template <typename Copy>
void for_runs(const StoredPart& part, Copy copy) {
  const std::int64_t bytes = size_bytes(part.operand.dtype);
  for (const StoredRun& run : part.runs) {
    if (part.column_stride == 1) {
      copy(run.from * bytes, run.to * bytes, run.count * bytes);
      continue;
    }
    for (std::int64_t index = 0; index < run.count; ++index) {
      copy((run.from + index) * bytes, (run.to + index * part.column_stride) * bytes, bytes);
    }
  }
}

}  // namespace

std::vector<StoredOperand> stored_operands(const Problem& problem) {
  std::vector<StoredOperand> all;
  for (const Operand& operand : operands_of(problem)) {
    StoredOperand stored = stored_of(problem, operand);
    // Scales lie by slices and without gaps, whatever the layout says.
    const bool joins =
        operand.per_slot && !is_scale(operand.role) && !problem.separate() && operand.elements > 0;
    const auto with = std::find_if(all.begin(), all.end(), [&](const StoredOperand& other) {
      return joins && other.whole.role == operand.role && other.whole.slice < 0;
    });
    if (with != all.end()) {
      with->parts.push_back(std::move(stored.parts.front()));
      continue;
    }
    if (joins) {
      stored.whole.slice = -1;
    }
    all.push_back(std::move(stored));
  }
  return all;
}

std::vector<std::byte> stored_bytes(const StoredOperand& stored, const Tensors& tensors,
                                    std::byte gap) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(stored.whole.bytes()), gap);
  for (const StoredPart& part : stored.parts) {
    const std::byte* const source = tensors.of(part.operand).data.data();
    for_runs(part, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
      std::memcpy(bytes.data() + to, source + from, static_cast<std::size_t>(count));
    });
  }
  return bytes;
}

std::vector<std::byte> bytes_with_gaps(const StoredOperand& h, std::byte lanes, std::byte gap) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(h.whole.bytes()), gap);
  const std::int64_t element = size_bytes(h.whole.dtype);
  for (std::int64_t first = 0; first < h.whole.elements; first += h.pitch) {
    std::fill_n(bytes.begin() + first * element, h.lanes * element, lanes);
  }
  return bytes;
}

std::vector<std::byte> tensor_bytes_of(const StoredOperand& stored,
                                       std::span<const std::byte> buffer, std::byte gap) {
  const StoredPart& part = stored.parts.front();
  std::vector<std::byte> bytes(static_cast<std::size_t>(part.operand.bytes()), gap);
  for_runs(part, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    std::memcpy(bytes.data() + from, buffer.data() + to, static_cast<std::size_t>(count));
  });
  return bytes;
}

std::int64_t row_with_written_gap(const StoredOperand& h, std::span<const std::byte> buffer,
                                  std::byte gap) {
  const std::int64_t bytes = size_bytes(h.whole.dtype);
  for (std::int64_t row = 0; row * h.pitch < h.whole.elements; ++row) {
    const auto behind = buffer.subspan(static_cast<std::size_t>((row * h.pitch + h.lanes) * bytes),
                                       static_cast<std::size_t>((h.pitch - h.lanes) * bytes));
    if (std::any_of(behind.begin(), behind.end(), [gap](std::byte at) { return at != gap; })) {
      return row;
    }
  }
  return -1;
}

}  // namespace lora_bench
