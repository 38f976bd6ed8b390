#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/dtype.h"
#include "verify/diagnose.h"

namespace lora_bench {
namespace {

// Beyond so many numbers of A or B the scales of each would take longer than they tell.
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 24;

struct NumberOf {
  std::int64_t slot = 0, row = 0, column = 0;
};

// The scales of A or B of one slice, and how they are read.
class Scales {
 public:
  Scales(const Evidence& evidence, Role role, std::int64_t slice)
      : problem_(evidence.problem),
        tensors_(evidence.tensors),
        role_(role),
        slice_(slice),
        blocks_(problem_.scales_of(role, slice)) {}

  [[nodiscard]] bool of_a() const { return role_ == Role::kAScale; }
  [[nodiscard]] std::int64_t rows() const {
    return of_a() ? problem_.max_rank : problem_.widths[static_cast<std::size_t>(slice_)];
  }
  [[nodiscard]] std::int64_t columns() const {
    return of_a() ? problem_.in_features : problem_.max_rank;
  }
  [[nodiscard]] std::int64_t slots() const { return problem_.slots; }
  [[nodiscard]] const ScaleBlocks& blocks() const { return blocks_; }
  [[nodiscard]] Scales of_first_slice() const {
    Scales first = *this;
    if (problem_.widths.front() > 0) {
      first.slice_ = 0;
      first.blocks_ = problem_.scales_of(role_, 0);
    }
    return first;
  }
  // NaN where there is no such block.
  [[nodiscard]] float of_block(std::int64_t slot, std::int64_t down, std::int64_t across) const {
    const HostTensor& tensor =
        (of_a() ? tensors_.a_scale : tensors_.b_scale)[static_cast<std::size_t>(slice_)];
    const std::int64_t place = std::min(down * blocks_.across + across, blocks_.of_slot() - 1);
    return load(tensor.dtype, tensor.data.data(), slot * blocks_.of_slot() + place);
  }
  // The same where slots are as far apart as in the first slice; behind the array its last scale.
  [[nodiscard]] float by_pitch_of_first(const NumberOf& of) const {
    const HostTensor& tensor =
        (of_a() ? tensors_.a_scale : tensors_.b_scale)[static_cast<std::size_t>(slice_)];
    const std::int64_t pitch = problem_.scales_of(role_, 0).of_slot();
    const std::int64_t place = of.slot * pitch + blocks_.at(0, of.row, of.column);
    return load(tensor.dtype, tensor.data.data(), std::min(place, tensor.elements - 1));
  }
  [[nodiscard]] float of(std::int64_t slot, std::int64_t row, std::int64_t column) const {
    return of_block(slot, row / blocks_.rows, column / blocks_.columns);
  }

 private:
  const Problem& problem_;
  const Tensors& tensors_;
  Role role_;
  std::int64_t slice_;
  ScaleBlocks blocks_;
};

struct ScaleMisreading {
  const char* how = "";
  float (*scale)(const Scales& scales, const NumberOf& of) = nullptr;
};

constexpr ScaleMisreading kScaleMisreadings[] = {
    {"left out", [](const Scales&, const NumberOf&) { return 1.0F; }},
    {"multiplied in twice",
     [](const Scales& scales, const NumberOf& of) {
       const float scale = scales.of(of.slot, of.row, of.column);
       return scale * scale;
     }},
    {"divided by", [](const Scales& scales,
                      const NumberOf& of) { return 1 / scales.of(of.slot, of.row, of.column); }},
    {"those of the next slot",
     [](const Scales& scales, const NumberOf& of) {
       return scales.of((of.slot + 1) % scales.slots(), of.row, of.column);
     }},
    {"those of the first slice",
     [](const Scales& scales, const NumberOf& of) {
       return scales.of_first_slice().of(of.slot, of.row, of.column);
     }},
    {"sought where the first slice has those of the slot",
     [](const Scales& scales, const NumberOf& of) { return scales.by_pitch_of_first(of); }},
    {"those of the next block",
     [](const Scales& scales, const NumberOf& of) {
       const ScaleBlocks& blocks = scales.blocks();
       const std::int64_t down = of.row / blocks.rows, across = of.column / blocks.columns;
       return scales.of_a() ? scales.of_block(of.slot, down, (across + 1) % blocks.across)
                            : scales.of_block(of.slot, (down + 1) % blocks.down, across);
     }},
    {"read as if rows and columns of a block were each other",
     [](const Scales& scales, const NumberOf& of) {
       const ScaleBlocks& blocks = scales.blocks();
       return scales.of_block(of.slot, of.row / blocks.columns, of.column / blocks.rows);
     }},
    {"those of the first of two blocks",
     [](const Scales& scales, const NumberOf& of) {
       const ScaleBlocks& blocks = scales.blocks();
       const std::int64_t across = of.column / blocks.columns;
       return scales.of_block(of.slot, of.row / blocks.rows,
                              scales.of_a() ? across - across % 2 : across);
     }},
    {"rounded to the 11 bits of fp16",
     [](const Scales& scales, const NumberOf& of) {
       return rounded_to_bits(scales.of(of.slot, of.row, of.column), kBitsOfFp16);
     }},
    {"rounded to the 8 bits of bf16",
     [](const Scales& scales, const NumberOf& of) {
       return rounded_to_bits(scales.of(of.slot, of.row, of.column), kBitsOfBf16);
     }},
};

bool is_small(const Problem& problem) {
  std::int64_t widest = problem.max_rank;
  for (const std::int64_t width : problem.widths) {
    widest = std::max(widest, width);
  }
  return problem.slots * std::max(widest, problem.in_features) * problem.max_rank <= kMostNumbers;
}

// A scale for every number of the row's adapter.
std::vector<float> read_so(const Scales& scales, std::int64_t slot,
                           const ScaleMisreading* misreading) {
  std::vector<float> values(
      static_cast<std::size_t>(scales.slots() * scales.rows() * scales.columns()));
  auto to = values.begin() + slot * scales.rows() * scales.columns();
  for (std::int64_t row = 0; row < scales.rows(); ++row) {
    for (std::int64_t column = 0; column < scales.columns(); ++column) {
      *to++ = misreading == nullptr ? scales.of(slot, row, column)
                                    : misreading->scale(scales, {slot, row, column});
    }
  }
  return values;
}

struct Which {
  bool a = false, b = false;
  const char* name = "";
};

bool explained_by(const Evidence& evidence, const ScaleMisreading& misreading, const Which& which) {
  std::size_t next = 0;
  return explains(evidence, [&](RowModel& model) {
    const std::int64_t slot = evidence.rows[next++].adapter;
    const Problem& problem = evidence.problem;
    for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
      if (has_shrink(problem.op)) {
        const Scales scales(evidence, Role::kAScale, slice);
        model.read_scales(Role::kAScale, slice,
                          read_so(scales, slot, which.a ? &misreading : nullptr));
      }
      if (has_expand(problem.op) && problem.widths[static_cast<std::size_t>(slice)] > 0) {
        const Scales scales(evidence, Role::kBScale, slice);
        model.read_scales(Role::kBScale, slice,
                          read_so(scales, slot, which.b ? &misreading : nullptr));
      }
    }
  });
}

}  // namespace

std::string test_weight_scale_misread(const Evidence& evidence) {
  const Problem& problem = evidence.problem;
  if (!problem.has_scaled_weights() || !is_small(problem)) {
    return "";
  }
  // Where the scales of one of them are fine, those of the other are the same however they are
  // rounded.
  const Fill fill = evidence.tensors.fill;
  const bool a = has_shrink(problem.op) && fill != Fill::kFineB;
  const bool b = has_expand(problem.op) && fill != Fill::kFineA;
  for (const ScaleMisreading& misreading : kScaleMisreadings) {
    for (const Which& which : {Which{a, b,
                                     a && b ? "A and B"
                                     : a    ? "A"
                                            : "B"},
                               Which{a, false, "A"}, Which{false, b, "B"}}) {
      const bool repeats = !which.a && !which.b;
      if (!repeats && explained_by(evidence, misreading, which)) {
        return fmt::format("the scales of {} are {}", which.name, misreading.how);
      }
    }
  }
  return "";
}

std::string test_weights_misread(const Evidence& evidence) {
  const Problem& problem = evidence.problem;
  if (!problem.has_scaled_weights()) {
    return "";
  }
  const Dtype stored = problem.dtype[Role::kA];
  const Dtype other = stored == Dtype::kE4m3 ? Dtype::kE5m2 : Dtype::kE4m3;
  if (explains(evidence, [&](RowModel& model) {
        model.read_numbers(other == Dtype::kE4m3 ? reference::Number::kE4m3
                                                 : reference::Number::kE5m2);
      })) {
    return fmt::format("A and B in {} are read as {}", name(stored), name(other));
  }
  const bool fits = explains(evidence, [&](RowModel& model) {
    for (std::int64_t slice = 0; slice < problem.slices(); ++slice) {
      const auto index = static_cast<std::size_t>(slice);
      model.read_weights(Role::kA, slice,
                         without_subnormals(stored, evidence.tensors.a[index].data));
      model.read_weights(Role::kB, slice,
                         without_subnormals(stored, evidence.tensors.b[index].data));
    }
  });
  return fits ? fmt::format("subnormal numbers of A and B in {} are taken as 0", name(stored)) : "";
}

}  // namespace lora_bench
