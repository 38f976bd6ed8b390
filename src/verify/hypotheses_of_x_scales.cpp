#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/dtype.h"
#include "verify/diagnose.h"

namespace lora_bench {
namespace {

// The scales of x of one case, as Problem::x_row counts its rows.
struct ScalesOfX {
  const Problem& problem;
  const HostTensor& tensor;
  ScalesOfRows scales = problem.scales_of_x();

  [[nodiscard]] float of(std::int64_t x_row, std::int64_t group) const {
    return load(tensor.dtype, tensor.data.data(), scales.at(x_row, problem.tokens, 0) + group);
  }
};

// A group of a row of one slice's x, whose rows begin at `first`.
struct GroupOfRow {
  std::int64_t first = 0, token = 0, group = 0;
};

float own(const ScalesOfX& scales, const GroupOfRow& at) {
  return scales.of(at.first + at.token, at.group);
}

struct XScaleMisreading {
  const char* how = "";
  float (*scale)(const ScalesOfX& scales, const GroupOfRow& at) = nullptr;
};

constexpr XScaleMisreading kXScaleMisreadings[] = {
    {"left out", [](const ScalesOfX&, const GroupOfRow&) { return 1.0F; }},
    {"multiplied in twice", [](const ScalesOfX& scales,
                               const GroupOfRow& at) { return own(scales, at) * own(scales, at); }},
    {"divided by",
     [](const ScalesOfX& scales, const GroupOfRow& at) { return 1 / own(scales, at); }},
    {"those of the next row",
     [](const ScalesOfX& scales, const GroupOfRow& at) {
       return scales.of(at.first + (at.token + 1) % scales.problem.tokens, at.group);
     }},
    {"those of the first row",
     [](const ScalesOfX& scales, const GroupOfRow& at) { return scales.of(at.first, at.group); }},
    {"those of the next group of columns",
     [](const ScalesOfX& scales, const GroupOfRow& at) {
       return scales.of(at.first + at.token, (at.group + 1) % scales.scales.across);
     }},
    {"read as if they lay in the order of the plan",
     [](const ScalesOfX& scales, const GroupOfRow& at) {
       const std::vector<std::int32_t>& order = scales.problem.plan.token_order;
       const auto place = std::find(order.begin(), order.end(), at.token) - order.begin();
       return scales.of(at.first + place, at.group);
     }},
    {"rounded to the 11 bits of fp16",
     [](const ScalesOfX& scales, const GroupOfRow& at) {
       return rounded_to_bits(own(scales, at), kBitsOfFp16);
     }},
    {"rounded to the 8 bits of bf16",
     [](const ScalesOfX& scales, const GroupOfRow& at) {
       return rounded_to_bits(own(scales, at), kBitsOfBf16);
     }},
};

bool explained_by(const Evidence& evidence, const XScaleMisreading& misreading) {
  const Problem& problem = evidence.problem;
  const ScalesOfX scales{problem, evidence.tensors.x_scale};
  std::size_t next = 0;
  return explains(evidence, [&](RowModel& model) {
    const std::int64_t token = evidence.rows[next++].token;
    std::vector<float> read;
    for (std::int64_t slice = 0; slice < (problem.own_inputs() ? problem.slices() : 1); ++slice) {
      for (std::int64_t group = 0; group < scales.scales.across; ++group) {
        read.push_back(misreading.scale(scales, {problem.x_row(slice, 0), token, group}));
      }
    }
    model.use_scales_of_x(std::move(read));
  });
}

}  // namespace

std::string test_x_scale_misread(const Evidence& evidence) {
  if (!evidence.problem.has_scaled_x()) {
    return "";
  }
  for (const XScaleMisreading& misreading : kXScaleMisreadings) {
    if (explained_by(evidence, misreading)) {
      return fmt::format("the scales of x are {}", misreading.how);
    }
  }
  return "";
}

std::string test_x_misread(const Evidence& evidence) {
  if (!evidence.problem.has_scaled_x()) {
    return "";
  }
  const Dtype stored = evidence.problem.dtype[Role::kX];
  const Dtype other = stored == Dtype::kE4m3 ? Dtype::kE5m2 : Dtype::kE4m3;
  if (explains(evidence, [&](RowModel& model) {
        model.read_x_as(other == Dtype::kE4m3 ? reference::Number::kE4m3
                                              : reference::Number::kE5m2);
      })) {
    return fmt::format("x in {} is read as {}", name(stored), name(other));
  }
  const bool flushed = explains(
      evidence, [&](RowModel& model) { model.read_x(without_subnormals(stored, model.x())); });
  return flushed ? fmt::format("subnormal numbers of x in {} are taken as 0", name(stored)) : "";
}

}  // namespace lora_bench
