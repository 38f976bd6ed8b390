#include "run/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/bytes.h"
#include "core/error.h"
#include "report/json_row.h"
#include "run/exported_file.h"

namespace lora_bench {
namespace {

std::int64_t stride_of(const ExportedFile& file, const char* tensor, std::int64_t otherwise) {
  if (!file.has(tensor)) {
    return otherwise;
  }
  const std::vector<std::int64_t>& shape = file.tensor(tensor).shape;
  if (shape.empty() || shape.back() < otherwise) {
    file.refuse(fmt::format("tensor '{}' has rows of fewer than {} elements", tensor, otherwise));
  }
  return file.checked(tensor, shape.back());
}

// What a peer was given must be the plan of these ids.
void check_plan(const ExportedFile& file, const Plan& plan) {
  const auto check = [&](const char* name, const std::vector<std::int32_t>& values) {
    if (file.list<std::int32_t>(name, "I32") != values) {
      file.refuse(fmt::format("'{}' does not follow from 'adapter_of_token'", name));
    }
  };
  check("token_order", plan.token_order);
  check("active_ids", plan.active_ids);
  check("group_starts", plan.group_starts);
}

// How the case has its operands, which lie in the file without gaps all the same.
void read_layout(const ExportedFile& file, Problem& problem) {
  const auto layout = file.value<nlohmann::json>("layout");
  const auto number = [&](const char* name, std::int64_t least) {
    if (!layout.contains(name) || !layout[name].is_number_integer() ||
        layout[name].get<std::int64_t>() < least) {
      file.refuse(fmt::format("'layout' of its metadata has no '{}' of at least {}", name, least));
    }
    return layout[name].get<std::int64_t>() - least;
  };
  const auto& names = EnumNames<Placing>::kNames;
  const auto found = !layout.is_object() || !layout.contains("placing")
                         ? names.end()
                         : std::find(names.begin(), names.end(), layout["placing"]);
  if (found == names.end()) {
    file.refuse("'layout' of its metadata has no placing: separate, stacked or packed");
  }
  problem.layout.placing = static_cast<Placing>(found - names.begin());
  problem.layout.x_column_stride = 1 + number("x_column_stride", 1);
  problem.layout.a_gap = number("a_stride", problem.in_features);
  problem.layout.b_gap = number("b_stride", problem.max_rank);
  problem.layout.h_gap = number("h_stride", problem.lanes_together());
}

// A file that says nothing has weights without scales.
void read_weights_scale(const ExportedFile& file, Problem& problem) {
  if (!file.says("weights_scale")) {
    return;
  }
  problem.weights_scale = file.one_of(
      "weights_scale",
      {WeightsScale::kNone, WeightsScale::kTensor, WeightsScale::kChannel, WeightsScale::kBlock});
  if (problem.weights_scale == WeightsScale::kBlock) {
    const std::vector<std::int64_t> block = file.sizes("weights_block");
    if (block.size() != 2 || block[0] == 0 || block[1] == 0) {
      file.refuse("'weights_block' of its metadata must hold rows and columns of a block");
    }
    problem.block_rows = block[0];
    problem.block_columns = block[1];
  }
}

// A file that says nothing has an x without scales.
void read_activations_scale(const ExportedFile& file, Problem& problem) {
  if (!file.says("activations_scale")) {
    return;
  }
  problem.activations_scale =
      file.one_of("activations_scale", {ActivationsScale::kNone, ActivationsScale::kTensor,
                                        ActivationsScale::kToken, ActivationsScale::kBlock});
  problem.activations_group = file.size("activations_group");
  if ((problem.activations_scale == ActivationsScale::kBlock) != (problem.activations_group > 0)) {
    file.refuse("'activations_group' of its metadata must hold the columns of a block, or 0");
  }
}

// But for the format.
void read_rule(const ExportedFile& file, const std::string& prefix, QuantiserRule& rule) {
  rule.convert = file.one_of(prefix + "convert", {Convert::kDivide, Convert::kMultiply});
  rule.least_amax = static_cast<float>(file.value<double>(prefix + "least_amax"));
  rule.least_scale = static_cast<float>(file.value<double>(prefix + "least_scale"));
  rule.power_of_two = file.value<bool>(prefix + "power_of_two");
}

// A file that says nothing has an h that is not quantised.
void read_quantiser_of_h(const ExportedFile& file, Problem& problem) {
  if (!file.says("h_code_dtype")) {
    return;
  }
  HiddenQuantiser quantiser;
  quantiser.rule.to = file.one_of("h_code_dtype", {Dtype::kE4m3, Dtype::kE5m2});
  read_rule(file, "h_", quantiser.rule);
  quantiser.group = file.size("h_group");
  if (problem.op != Op::kLinear) {
    file.refuse("'h_code_dtype' of its metadata is for op linear alone");
  }
  problem.h_quantiser = quantiser;
}

// A file that says nothing is of a layer without experts.
void read_route(const ExportedFile& file, Problem& problem) {
  if (!file.says("experts")) {
    return;
  }
  Route& route = problem.route;
  route.experts = file.size("experts");
  route.choices = file.size("choices");
  route.x_rows = file.size("x_rows");
  if (route.experts < 1 || route.choices < 1 || problem.slots % route.experts != 0 ||
      problem.tokens % route.choices != 0) {
    file.refuse("'experts' and 'choices' of its metadata must divide 'slots' and 'tokens'");
  }
  const auto rows = static_cast<std::size_t>(problem.tokens);
  if (file.has("token_of_row")) {
    route.token_of_row = file.list<std::int32_t>("token_of_row", "I32");
    if (route.token_of_row.size() != rows || !has_shrink(problem.op) ||
        std::any_of(route.token_of_row.begin(), route.token_of_row.end(),
                    [&](std::int32_t row) { return row < 0 || row >= route.x_rows; })) {
      file.refuse("'token_of_row' must hold a row of x, of 'x_rows', for each token");
    }
  }
  if (file.has("factor")) {
    const std::vector<std::byte>& factors = file.tensor("factor").data;
    route.factor_of_row.resize(rows);
    if (factors.size() != rows * sizeof(float) || !has_expand(problem.op)) {
      file.refuse("'factor' must hold a number for each token, of an op that makes y");
    }
    std::memcpy(route.factor_of_row.data(), factors.data(), factors.size());
  }
}

Problem read_problem(const ExportedFile& file) {
  Problem problem;
  problem.op =
      file.one_of("op", {Op::kShrink, Op::kExpand, Op::kLinear, Op::kEmbedding, Op::kLogits});
  read_weights_scale(file, problem);
  read_activations_scale(file, problem);
  read_quantiser_of_h(file, problem);
  for (std::size_t index = 0; index < problem.dtype.of_role.size(); ++index) {
    const auto role = static_cast<Role>(index);
    if (!is_scale(role)) {
      problem.dtype[role] = file.dtype_of(role, problem.has_scales(role));
    }
  }
  problem.scale_at = file.one_of("scale_at", {ScaleAt::kShrink, ScaleAt::kExpand});
  problem.add_inputs = file.value<bool>("add_inputs");
  problem.inputs = file.one_of("inputs", {Inputs::kShared, Inputs::kPerSlice});
  problem.rank0_bias = file.value<bool>("rank0_bias");
  problem.shrink_adds = file.value<bool>("shrink_adds");
  problem.idle_rows = file.one_of("idle_rows", {IdleRows::kKept, IdleRows::kZeroed});
  problem.tokens = file.size("tokens");
  problem.in_features = file.size("in_features");
  problem.offset_start = file.size("offset_start");
  problem.slots = file.size("slots");
  problem.max_rank = file.size("max_rank");
  read_route(file, problem);
  problem.widths = file.sizes("widths");
  std::int64_t columns = problem.offset_start;
  for (std::size_t slice = 0; slice < problem.widths.size(); ++slice) {
    columns = file.checked("widths", columns + problem.widths[slice]);
    if (file.has(fmt::format("bias.{}", slice))) {
      problem.bias_slices.push_back(static_cast<std::int64_t>(slice));
    }
  }
  problem.bias = !problem.bias_slices.empty();
  problem.own_rank = file.sizes("own_rank");
  problem.plan_form =
      file.one_of("plan_form", {PlanForm::kSorted, PlanForm::kKernel, PlanForm::kChunked});
  read_layout(file, problem);
  problem.x_stride = stride_of(file, "x", problem.in_features);
  problem.y_stride = stride_of(file, "y_before", columns);
  problem.rank = file.list<std::int64_t>("rank", "I64");
  problem.scale = file.list<float>("scale", "F32");
  const auto slots = static_cast<std::size_t>(problem.slots);
  if (problem.rank.size() != slots || problem.scale.size() != slots ||
      std::any_of(problem.rank.begin(), problem.rank.end(),
                  [&](std::int64_t rank) { return rank < 0 || rank > problem.max_rank; })) {
    file.refuse("'rank' and 'scale' must hold a value for each slot, ranks up to 'max_rank'");
  }
  if (!problem.own_rank.empty() && problem.own_rank.size() != slots) {
    file.refuse("'own_rank' of its metadata must be empty, or hold a rank for each slot");
  }
  try {
    problem.plan = make_plan(file.list<std::int32_t>("adapter_of_token", "I32"), problem.slots);
  } catch (const std::invalid_argument& error) {
    file.refuse(error.what());
  }
  if (problem.plan.tokens() != problem.tokens) {
    file.refuse("'adapter_of_token' must hold an adapter for each token");
  }
  return problem;
}

Tensors read_tensors(ExportedFile& file, const Problem& problem) {
  Tensors tensors = empty_tensors(problem, Fill::kBounded);
  tensors.scale = problem.scale;
  for (const Operand& operand : operands_of(problem)) {
    HostTensor& tensor = tensors.of(operand);
    tensor = file.operand(exported_name(operand), operand.dtype, operand.shape,
                          exported(operand) ? operand.elements : 0);
    if (operand.elements > 0 && !exported(operand)) {  // an h that the op writes
      tensor.elements = operand.elements;
      tensor.data.assign(static_cast<std::size_t>(operand.bytes()), std::byte{0xFF});
    }
  }
  return tensors;
}

Row read_row(const ExportedFile& file) {
  auto json = file.value<nlohmann::json>("row");
  if (!json.is_object()) {
    file.refuse("'row' of its metadata is no row");
  }
  if (file.word("row_seal") != seal_of_row(file.word("content"), file.word("row"))) {
    file.refuse("'row' of its metadata was changed, or is that of another case");
  }
  json["backend"] = "";
  json["status"] = name(Status::kMistrusted);
  std::vector<std::string> unknown;
  return row_from_json(json, unknown);
}

QuantiseProblem read_quantise(const ExportedFile& file) {
  QuantiseProblem problem;
  problem.from = file.one_of("dtype", {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32});
  problem.to = file.one_of("activations_dtype", {Dtype::kE4m3, Dtype::kE5m2});
  problem.rows = file.size("rows");
  problem.columns = file.size("columns");
  problem.stride = stride_of(file, "x", problem.columns);
  Problem scaled;
  scaled.op = Op::kQuantise;
  scaled.tokens = problem.rows;
  scaled.in_features = problem.columns;
  scaled.activations_scale =
      file.one_of("activations_scale",
                  {ActivationsScale::kTensor, ActivationsScale::kToken, ActivationsScale::kBlock});
  scaled.activations_group = file.size("activations_group");
  if (problem.columns == 0 || scaled.activations_group == 0) {
    file.refuse("'columns' and 'activations_group' of its metadata must be above 0");
  }
  problem.scales = scaled.scales_of_rows();
  problem.scales_given = file.has("x_scale");
  read_rule(file, "", problem);
  return problem;
}

}  // namespace

bool exported(const Operand& operand) { return operand.elements > 0 && operand.given; }

std::string exported_name(const Operand& operand) {
  Operand of_all = operand;
  of_all.slice = -1;
  const std::string name = operand.role == Role::kY ? "y_before" : label(of_all);
  return operand.slice < 0 ? name : fmt::format("{}.{}", name, operand.slice);
}

std::string seal_of_row(const std::string& content, const std::string& row) {
  return sha256(content + row).substr(0, 16);
}

std::string content_of(const QuantiseProblem& problem) {
  return sha256(fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", problem.rows, problem.columns,
                            problem.stride, name(problem.from), name(problem.to),
                            problem.scale_count(), problem.scales.columns, quantiser_text(problem),
                            problem.least_amax, problem.least_scale))
      .substr(0, 16);
}

ExportedQuantise exported_quantise(StoredTensors stored) {
  ExportedFile file(stored);
  ExportedQuantise read{.row = read_row(file), .problem = read_quantise(file), .inputs = {}};
  const QuantiseProblem& problem = read.problem;
  if (file.word("content") != content_of(problem)) {
    file.refuse("its metadata was changed, or the tensors are those of another case");
  }
  const auto take = [&](const char* name, Dtype dtype, const std::vector<std::int64_t>& shape) {
    read.inputs.push_back(file.operand(name, dtype, shape, shape[0] * shape[1]).data);
  };
  take("x", problem.from, {problem.rows, problem.stride});
  if (problem.scales_given) {
    take("x_scale", Dtype::kFp32, {problem.scales.rows, problem.scales.across});
  }
  return read;
}

ExportedCase exported_case(StoredTensors stored) {
  ExportedFile file(stored);
  ExportedCase read;
  read.problem = read_problem(file);
  read.row = read_row(file);
  // Of a layer the row tells more than the op that is its adapters' part.
  if (file.word("content") != content_of(read.problem)) {
    file.refuse("the tensors are not those of the case that its metadata tells");
  }
  check_plan(file, read.problem.plan);
  read.tensors = read_tensors(file, read.problem);
  read.rows = file.list<std::int64_t>("rows", "I64");
  const std::vector<std::int64_t>& rows = read.rows;
  if (std::any_of(rows.begin(), rows.end(),
                  [&](std::int64_t row) { return row < 0 || row >= read.problem.tokens; })) {
    file.refuse("'rows' names a row that is no token");
  }
  if (std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) != rows.end()) {
    file.refuse("'rows' must ascend, each row once");
  }
  return read;
}

}  // namespace lora_bench
