#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "verify/diagnose.h"
#include "workload/stored.h"

namespace lora_bench {
namespace {

// A row of an operand: a lane of A, an output of B, the bias of a slot, the x of a token.
struct RowOf {
  std::int64_t slice = 0, slot = 0, row = 0;
};
// Where it begins, in elements from the address that the slice is given.
using Begins = std::int64_t (*)(const Problem&, Role, const RowOf&);

// Operands that are read as if they lay otherwise than they do.
struct Misreading {
  std::vector<Role> roles;
  const char* how = "";
  Begins begins = nullptr;
};

std::int64_t as_packed_at_largest(const Problem& problem, Role, const RowOf& at) {
  return problem.a_at(at.slice, at.slot, problem.max_rank, at.row);
}

std::int64_t as_apart(const Problem& problem, Role role, const RowOf& at) {
  const std::int64_t width = problem.widths[static_cast<std::size_t>(at.slice)];
  switch (role) {
    case Role::kA:
      return (at.slot * problem.max_rank + at.row) * problem.a_pitch();
    case Role::kB:
      return (at.slot * width + at.row) * problem.b_pitch();
    default:
      return at.slot * width;
  }
}

std::int64_t as_without_gaps(const Problem& problem, Role role, const RowOf& at) {
  const std::int64_t rank = problem.rank[static_cast<std::size_t>(at.slot)];
  return role == Role::kA
             ? problem.a_at(at.slice, at.slot, rank, at.row) / problem.a_pitch() *
                   problem.in_features
             : problem.b_at(at.slice, at.slot, at.row) / problem.b_pitch() * problem.max_rank;
}

std::int64_t as_side_by_side(const Problem& problem, Role, const RowOf& at) {
  return problem.x_at(at.slice, at.row, 0);
}

// Of one operand before those of several at once.
std::vector<Misreading> misreadings(const Problem& problem) {
  std::vector<Misreading> all;
  if (problem.layout.x_column_stride > 1) {
    all.push_back({{Role::kX}, "as if its columns lay side by side", as_side_by_side});
  }
  if (problem.packed()) {
    all.push_back({{Role::kA}, "as if packed at the largest rank", as_packed_at_largest});
  }
  const bool gap_of_a = problem.layout.a_gap > 0, gap_of_b = problem.layout.b_gap > 0;
  for (const std::vector<Role>& roles :
       std::vector<std::vector<Role>>{{Role::kA},
                                      {Role::kB},
                                      {Role::kBias},
                                      {Role::kA, Role::kB},
                                      {Role::kB, Role::kBias},
                                      {Role::kA, Role::kB, Role::kBias}}) {
    if (!problem.separate()) {
      all.push_back({roles, "as if each slice lay apart", as_apart});
    }
    const bool gaps = std::all_of(roles.begin(), roles.end(), [&](Role role) {
      return (role == Role::kA && gap_of_a) || (role == Role::kB && gap_of_b);
    });
    if (gaps) {
      all.push_back({roles, "as if there were no gaps between its rows", as_without_gaps});
    }
  }
  return all;
}

// A buffer that does not lie as its tensors do, with all that it holds.
struct Held {
  StoredOperand stored;
  std::vector<std::byte> image;
};

std::vector<Held> held_buffers(const Evidence& evidence) {
  std::vector<Held> all;
  for (StoredOperand& stored : stored_operands(evidence.problem)) {
    const Role role = stored.whole.role;
    if (!stored.as_tensor && role != Role::kH && role != Role::kY) {
      std::vector<std::byte> image = stored_bytes(stored, evidence.tensors, evidence.tensors.gap);
      all.push_back({std::move(stored), std::move(image)});
    }
  }
  return all;
}

// Elements of a buffer from `from` on; what lies beyond it is NaN.
void copy_read(const Held& held, std::int64_t from, std::int64_t count, std::byte* to) {
  const std::int64_t element = size_bytes(held.stored.whole.dtype);
  const std::int64_t first = from * element;
  const std::int64_t last =
      std::min((from + count) * element, static_cast<std::int64_t>(held.image.size()));
  std::fill_n(to, count * element, std::byte{0xFF});
  if (first >= 0 && first < last) {
    std::memcpy(to, held.image.data() + first, static_cast<std::size_t>(last - first));
  }
}

void misread_weights(const Evidence& evidence, const Held& held, const StoredPart& part,
                     const Misreading& misreading, std::int32_t slot, RowModel& model) {
  const Problem& problem = evidence.problem;
  const Operand& operand = part.operand;
  const std::int64_t width = problem.widths[at(operand.slice)];
  const std::int64_t rank = problem.rank[at(slot)];
  const bool of_a = operand.role == Role::kA, of_b = operand.role == Role::kB;
  const std::int64_t rows = of_a ? rank : of_b ? width : 1;
  const std::int64_t room = of_a ? problem.max_rank : rows;
  const std::int64_t count = of_a ? problem.in_features : of_b ? problem.max_rank : width;
  std::vector<std::byte> values = evidence.tensors.of(operand).data;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t from =
        part.first + misreading.begins(problem, operand.role, {operand.slice, slot, row});
    copy_read(held, from, count,
              values.data() + (slot * room + row) * count * size_bytes(operand.dtype));
  }
  model.read_weights(operand.role, operand.slice, std::move(values));
}

void misread_x(const Evidence& evidence, const Held& held, const Misreading& misreading,
               std::int64_t token, RowModel& model) {
  const Problem& problem = evidence.problem;
  const std::int64_t slices = problem.own_inputs() ? problem.slices() : 1;
  const std::int64_t row_bytes = problem.x_stride * size_bytes(problem.dtype[Role::kX]);
  std::vector<std::byte> rows(at(slices * row_bytes));
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    copy_read(held, misreading.begins(problem, Role::kX, {slice, 0, token}), problem.in_features,
              rows.data() + slice * row_bytes);
  }
  model.read_x(std::move(rows));
}

// Whether every row is as if operands were misread so: kEmpty where it shows in NaN alone.
Agreement agreement_with(const Evidence& evidence, const std::vector<Held>& buffers,
                         const Misreading& misreading) {
  const auto is_of = [&](const Held& held) {
    return std::find(misreading.roles.begin(), misreading.roles.end(), held.stored.whole.role) !=
           misreading.roles.end();
  };
  const auto held_of = [&](Role role) {
    return std::any_of(buffers.begin(), buffers.end(),
                       [role](const Held& held) { return held.stored.whole.role == role; });
  };
  if (!std::all_of(misreading.roles.begin(), misreading.roles.end(), held_of)) {
    return Agreement::kNo;
  }
  Agreement all = Agreement::kEmpty;
  for (const WrongRow& row : evidence.rows) {
    RowModel model(evidence, row);
    if (model.rank() == 0) {
      return Agreement::kNo;
    }
    for (const Held& held : buffers) {
      if (is_of(held) && held.stored.whole.role == Role::kX) {
        misread_x(evidence, held, misreading, row.token, model);
      }
      for (const StoredPart& part : held.stored.parts) {
        if (is_of(held) && held.stored.whole.role != Role::kX) {
          misread_weights(evidence, held, part, misreading, row.adapter, model);
        }
      }
    }
    const Agreement agreement = agrees(evidence, row, model.predict());
    if (agreement == Agreement::kNo) {
      return agreement;
    }
    all = agreement == Agreement::kYes ? agreement : all;
  }
  return all;
}

const char* letter_of(Role role) {
  return role == Role::kA ? "A" : role == Role::kB ? "B" : role == Role::kX ? "x" : "bias";
}

std::string told_as(const Evidence& evidence, const Misreading& misreading) {
  if (misreading.roles.front() == Role::kX) {
    return fmt::format("x is read {}", misreading.how);
  }
  std::set<std::int32_t> slots;
  for (const WrongRow& row : evidence.rows) {
    slots.insert(row.adapter);
  }
  std::vector<std::string> letters;
  for (const Role role : misreading.roles) {
    letters.emplace_back(letter_of(role));
  }
  return fmt::format("{} of slot{} {} {} read {}", fmt::join(letters, " and "),
                     slots.size() > 1 ? "s" : "", fmt::join(slots, ", "),
                     letters.size() > 1 ? "are" : "is", misreading.how);
}

std::string first_that_agrees(const Evidence& evidence, Agreement wanted) {
  if (evidence.problem.layout.plain() || evidence.rows.empty()) {
    return "";
  }
  const std::vector<Held> buffers = held_buffers(evidence);
  for (const Misreading& misreading : misreadings(evidence.problem)) {
    if (agreement_with(evidence, buffers, misreading) == wanted) {
      return told_as(evidence, misreading);
    }
  }
  return "";
}

}  // namespace

std::string test_layout_misread(const Evidence& evidence) {
  return first_that_agrees(evidence, Agreement::kYes);
}

std::string layout_misread_in_nan(const Evidence& evidence) {
  return first_that_agrees(evidence, Agreement::kEmpty);
}

}  // namespace lora_bench
