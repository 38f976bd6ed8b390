#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/dtype.h"
#include "verify/diagnose.h"

namespace lora_bench {
namespace {

// The scales of x or h of one case, as Problem::row_of_activations counts their rows.
struct RowScales {
  const Problem& problem;
  const HostTensor& tensor;
  ScalesOfRows scales = problem.scales_of_rows();

  [[nodiscard]] float of(std::int64_t row, std::int64_t group) const {
    return load(tensor.dtype, tensor.data.data(), scales.at(row, problem.tokens, 0) + group);
  }
};

// A group of a row of one slice, whose rows begin at `first`.
struct GroupOfRow {
  std::int64_t first = 0, token = 0, group = 0;
};

float own(const RowScales& scales, const GroupOfRow& at) {
  return scales.of(at.first + at.token, at.group);
}

struct RowScaleMisreading {
  const char* how = "";
  float (*scale)(const RowScales& scales, const GroupOfRow& at) = nullptr;
};

constexpr RowScaleMisreading kRowScaleMisreadings[] = {
    {"left out", [](const RowScales&, const GroupOfRow&) { return 1.0F; }},
    {"multiplied in twice", [](const RowScales& scales,
                               const GroupOfRow& at) { return own(scales, at) * own(scales, at); }},
    {"divided by",
     [](const RowScales& scales, const GroupOfRow& at) { return 1 / own(scales, at); }},
    {"those of the next row",
     [](const RowScales& scales, const GroupOfRow& at) {
       return scales.of(at.first + (at.token + 1) % scales.problem.tokens, at.group);
     }},
    {"those of the first row",
     [](const RowScales& scales, const GroupOfRow& at) { return scales.of(at.first, at.group); }},
    {"those of the first slice",
     [](const RowScales& scales, const GroupOfRow& at) { return scales.of(at.token, at.group); }},
    {"those of the next group of columns",
     [](const RowScales& scales, const GroupOfRow& at) {
       return scales.of(at.first + at.token, (at.group + 1) % scales.scales.across);
     }},
    {"read as if they lay in the order of the plan",
     [](const RowScales& scales, const GroupOfRow& at) {
       const std::vector<std::int32_t>& order = scales.problem.plan.token_order;
       const auto place = std::find(order.begin(), order.end(), at.token) - order.begin();
       return scales.of(at.first + place, at.group);
     }},
    {"rounded to the 11 bits of fp16",
     [](const RowScales& scales, const GroupOfRow& at) {
       return rounded_to_bits(own(scales, at), kBitsOfFp16);
     }},
    {"rounded to the 8 bits of bf16",
     [](const RowScales& scales, const GroupOfRow& at) {
       return rounded_to_bits(own(scales, at), kBitsOfBf16);
     }},
};

bool explained_by(const Evidence& evidence, const RowScaleMisreading& misreading) {
  const Problem& problem = evidence.problem;
  const RowScales scales{
      problem, problem.has_scaled_x() ? evidence.tensors.x_scale : evidence.tensors.h_scale};
  std::size_t next = 0;
  return explains(evidence, [&](RowModel& model) {
    const std::int64_t token = evidence.rows[next++].token;
    std::vector<float> read;
    for (std::int64_t slice = 0; slice < (problem.own_activations() ? problem.slices() : 1);
         ++slice) {
      for (std::int64_t group = 0; group < scales.scales.across; ++group) {
        read.push_back(
            misreading.scale(scales, {problem.row_of_activations(slice, 0), token, group}));
      }
    }
    model.use_scales_of_row(std::move(read));
  });
}

std::string scales_misread(const Evidence& evidence, Role activations) {
  if (!evidence.problem.has_scales(activations)) {
    return "";
  }
  for (const RowScaleMisreading& misreading : kRowScaleMisreadings) {
    if (explained_by(evidence, misreading)) {
      return fmt::format("the scales of {} are {}", name(activations), misreading.how);
    }
  }
  return "";
}

std::string numbers_misread(const Evidence& evidence, Role activations) {
  if (!evidence.problem.has_scales(activations)) {
    return "";
  }
  const Dtype stored = evidence.problem.dtype[activations];
  const Dtype other = stored == Dtype::kE4m3 ? Dtype::kE5m2 : Dtype::kE4m3;
  if (explains(evidence, [&](RowModel& model) {
        model.read_activations_as(other == Dtype::kE4m3 ? reference::Number::kE4m3
                                                        : reference::Number::kE5m2);
      })) {
    return fmt::format("{} in {} is read as {}", name(activations), name(stored), name(other));
  }
  const bool flushed = explains(evidence, [&](RowModel& model) {
    model.read_activations(without_subnormals(stored, model.activations()));
  });
  return flushed ? fmt::format("subnormal numbers of {} in {} are taken as 0", name(activations),
                               name(stored))
                 : "";
}

}  // namespace

std::string test_x_scale_misread(const Evidence& evidence) {
  return scales_misread(evidence, Role::kX);
}

std::string test_x_misread(const Evidence& evidence) { return numbers_misread(evidence, Role::kX); }

std::string test_h_scale_misread(const Evidence& evidence) {
  return scales_misread(evidence, Role::kH);
}

std::string test_h_misread(const Evidence& evidence) { return numbers_misread(evidence, Role::kH); }

}  // namespace lora_bench
