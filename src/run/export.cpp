#include "run/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "layers/layer_engine.h"
#include "report/columns.h"
#include "report/json_row.h"
#include "run/describe.h"
#include "run/form.h"
#include "run/safetensors.h"
#include "verify/oracle.h"
#include "verify/quantise_proof.h"
#include "verify/staging.h"
#include "verify/verify.h"
#include "workload/semantics.h"
#include "workload/tensors.h"

namespace lora_bench {
namespace {

using Json = nlohmann::ordered_json;
using Shape = std::vector<std::int64_t>;

std::string file_stem(const std::string& case_id) {
  std::string stem = case_id;
  for (char& letter : stem) {
    const bool plain = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                       (letter >= '0' && letter <= '9') || letter == '-' || letter == '.';
    letter = plain ? letter : '_';
  }
  return stem;
}

// What a row says of the case, whatever runs it.
Json row_of(const Case& spec, const CaseStep& step) {
  const Json whole = Json::parse(to_json_line(describe_case(spec, step, "")));
  Json row;
  for (const Column& column : columns()) {
    if (column.before_run && column.key != "backend") {
      row[column.key] = whole[column.key];
    }
  }
  return row;
}

// How others are to measure it, see docs/measuring.md.
Json measure_of(const MeasureSettings& settings) {
  return {{"warmup_ms", settings.warmup_ms},     {"min_samples", settings.min_samples},
          {"max_samples", settings.max_samples}, {"min_time_ms", settings.min_time_ms},
          {"max_time_ms", settings.max_time_ms}, {"noise_target", settings.noise_target},
          {"cache", name(settings.cache)}};
}

Json dtypes_of(const Problem& problem) {
  Json dtypes;
  for (const Operand& operand : operands_of(problem)) {
    if (!is_scale(operand.role)) {
      dtypes[std::string(name(operand.role))] = name(operand.dtype);
    }
  }
  return dtypes;
}

// How numbers are quantised, but for the format; each key begins with `prefix`.
void put_rule(Json& metadata, const std::string& prefix, const QuantiserRule& rule) {
  metadata[prefix + "convert"] = name(rule.convert);
  metadata[prefix + "least_amax"] = rule.least_amax;
  metadata[prefix + "least_scale"] = rule.least_scale;
  metadata[prefix + "power_of_two"] = rule.power_of_two;
}

Json metadata_of(const ExportRequest& request, const CaseStep& step, const Problem& problem,
                 const Numerics& numerics) {
  const Case& spec = request.spec;
  const Json row = row_of(spec, step);
  Json metadata{{"scenario", spec.scenario},
                {"case", spec.id},
                {"backend", request.backend.name()},
                {"op", name(problem.op)},
                {"layer", has_base(spec.op)},
                {"content", content_of(problem)},
                {"shrink", has_shrink(problem.op)},
                {"expand", has_expand(problem.op)},
                {"dtypes", dtypes_of(problem)},
                {"weights_scale", name(problem.weights_scale)},
                {"weights_block", {problem.block_rows, problem.block_columns}},
                {"activations_scale", name(problem.activations_scale)},
                {"activations_group", problem.activations_group},
                {"scale_at", name(problem.scale_at)},
                {"add_inputs", problem.add_inputs},
                {"semantics", semantics_text(problem)},
                {"inputs", name(problem.inputs)},
                {"rank0_bias", problem.rank0_bias},
                {"shrink_adds", problem.shrink_adds},
                {"idle_rows", name(problem.idle_rows)},
                {"own_rank", problem.own_rank},
                {"plan_form", name(problem.plan_form)},
                {"layout",
                 {{"placing", name(problem.layout.placing)},
                  {"x_column_stride", problem.layout.x_column_stride},
                  {"a_stride", problem.a_pitch()},
                  {"b_stride", problem.b_pitch()},
                  {"h_stride", problem.h_pitch()}}},
                {"tokens", problem.tokens},
                {"in_features", problem.in_features},
                {"widths", problem.widths},
                {"offset_start", problem.offset_start},
                {"slots", problem.slots},
                {"max_rank", problem.max_rank},
                {"seed", spec.seed},
                {"unit_roundoff_of_output", unit_roundoff(output_dtype(problem))},
                {"declared",
                 {{"unit_roundoff", numerics.unit_roundoff},
                  {"shrink_depth", numerics.shrink_depth},
                  {"expand_depth", numerics.expand_depth},
                  {"partial", name(numerics.partial)},
                  {"partials", numerics.partials},
                  {"intermediate", name(numerics.intermediate)},
                  {"casts_h", numerics.casts_h},
                  {"bias_added", name(numerics.bias_added)},
                  {"rounds_delta", numerics.rounds_delta},
                  {"summation", numerics.summation}}},
                {"measure", measure_of(spec.measure)},
                {"row", row},
                {"row_seal", seal_of_row(content_of(problem), row.dump())}};
  if (problem.route.any()) {
    metadata["experts"] = problem.route.experts;
    metadata["choices"] = problem.route.choices;
    metadata["x_rows"] = problem.x_rows();
  }
  if (problem.h_quantiser) {
    metadata["h_code_dtype"] = name(problem.kept_h());
    metadata["h_group"] = problem.h_quantiser->group;
    put_rule(metadata, "h_", problem.h_quantiser->rule);
  }
  return metadata;
}

template <typename Element>
NamedTensor vector_tensor(std::string name, std::string type, const std::vector<Element>& values,
                          Shape shape = {}) {
  if (shape.empty()) {
    shape = {static_cast<std::int64_t>(values.size())};
  }
  return {std::move(name), std::move(type), std::move(shape), values.data(),
          static_cast<std::int64_t>(values.size() * sizeof(Element))};
}

// Operands that the op has, under the names of docs/export.md.
void add_operands(std::vector<NamedTensor>& list, const Problem& problem, const Tensors& tensors) {
  for (const Operand& operand : operands_of(problem)) {
    const HostTensor& tensor = tensors.of(operand);
    if (exported(operand)) {
      list.push_back({exported_name(operand), safetensors_type(tensor.dtype), operand.shape,
                      tensor.data.data(), static_cast<std::int64_t>(tensor.data.size())});
    }
  }
}

void add_plan(std::vector<NamedTensor>& list, const Problem& problem, const Tensors& tensors) {
  const Plan& plan = problem.plan;
  list.push_back(vector_tensor("adapter_of_token", "I32", plan.adapter_of_token));
  list.push_back(vector_tensor("token_order", "I32", plan.token_order));
  list.push_back(vector_tensor("active_ids", "I32", plan.active_ids));
  list.push_back(vector_tensor("group_starts", "I32", plan.group_starts));
  list.push_back(vector_tensor("rank", "I64", problem.rank));
  list.push_back(vector_tensor("scale", "F32", tensors.scale));
  if (problem.shares_x()) {
    list.push_back(vector_tensor("token_of_row", "I32", problem.route.token_of_row));
  }
}

void add_oracle(std::vector<NamedTensor>& list, const reference::Rows& rows) {
  const Shape shape{static_cast<std::int64_t>(rows.tokens.size()), rows.columns};
  list.push_back(vector_tensor("rows", "I64", rows.tokens));
  list.push_back(vector_tensor("expected", "F64", rows.expected, shape));
  list.push_back(vector_tensor("bound", "F64", rows.bound, shape));
  list.push_back(vector_tensor("owned", "U8", rows.owned, shape));
}

std::vector<std::byte> launch_once(const ExportRequest& request, const Problem& problem,
                                   const Tensors& tensors) {
  if (const Support support = request.backend.supports(problem, request.facts); !support.yes) {
    throw UsageError(std::string(request.backend.name()) + " cannot run " + request.spec.id + ": " +
                     support.why_not);
  }
  const std::unique_ptr<Backend> backend = preparing_in_each_launch(request.backend);
  Stage stage(request.memory, problem, tensors, scratch_bytes(*backend, problem));
  stage.launch(*backend);
  return stage.output();
}

void write_json(const std::filesystem::path& path, const Json& json) {
  std::ofstream file(path);
  file << json.dump(2) << '\n';
  file.close();
  if (!file) {
    throw EnvironmentError("cannot write '" + path.string() +
                           "': check that the folder may be written and has room");
  }
}

// safetensors allows strings alone as metadata.
std::map<std::string, std::string> as_strings(const Json& json) {
  std::map<std::string, std::string> strings;
  for (const auto& [key, value] : json.items()) {
    strings[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  return strings;
}

// What of a layer is more than a product and one linear op of what its adapters add, and what to do
// about each.
std::vector<std::string> beyond_export(const LayerProblem& layer) {
  const ShardProblem part = shard_problem(layer, 0);
  struct Condition {
    bool holds;
    std::string told;
  };
  std::vector<std::string> all;
  for (Condition& condition : std::vector<Condition>{
           {layer.layer.tp > 1,
            fmt::format("layer.tp is {}; set layer.tp 1, or write a shard as a case of op linear",
                        layer.layer.tp)},
           {layer.layer.tp > 1 && layer.layer.fully_sharded,
            "layer.fully_sharded is true, so that h is exchanged; write each half as a case of op "
            "shrink and of op expand"},
           {part.looks_up,
            fmt::format("layer.kind {} looks rows up; write its adapters as a case of op embedding",
                        name(layer.layer.kind))},
           {!part.looks_up && part.lora_after_y,
            fmt::format("layer.kind {} adds the adapters behind an exchange; write them as a case "
                        "of op logits",
                        name(layer.layer.kind))},
           {part.delta_apart, fmt::format("layer.overlap {} keeps delta apart; set layer.overlap "
                                          "serial",
                                          name(layer.overlap))},
           {layer.base_bias,
            "layer.bias is true; set layer.bias false, and give `check` y with the bias as "
            "--before"},
           {layer.caps(), "layer.soft_cap or layer.logit_scale is set; leave them out"}}) {
    if (condition.holds) {
      all.push_back(std::move(condition.told));
    }
  }
  return all;
}

// The op that others are to run: of a layer, which is a product and then this, what its adapters
// add.
Problem op_to_export(const Case& spec, const CaseStep& step) {
  if (!step.layer) {
    return step.op;
  }
  const std::vector<std::string> beyond = beyond_export(*step.layer);
  if (!beyond.empty()) {
    throw UsageError(fmt::format("case '{}' is a layer that is not exported:\n  {}", spec.id,
                                 fmt::join(beyond, "\n  ")));
  }
  return shard_problem(*step.layer, 0).lora;
}

bool is_there(const std::filesystem::path& file) {
  std::error_code unknown;
  return std::filesystem::exists(file, unknown);
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw EnvironmentError("cannot make folder '" + folder.string() + "': " + error.message());
  }
}

}  // namespace

void refuse_shared_files(const std::vector<std::string>& case_ids) {
  std::map<std::string, std::string> written;
  for (const std::string& id : case_ids) {
    const auto [first, is_new] = written.emplace(file_stem(id), id);
    if (!is_new && first->second != id) {
      throw UsageError(fmt::format(
          "cases '{}' and '{}' would both be written to {}.safetensors; name one of them otherwise "
          "in the scenario, or choose with --case and give each a folder of its own",
          first->second, id, first->first));
    }
  }
}

void refuse_unexported(const Case& spec) { static_cast<void>(op_to_export(spec, step_of(spec))); }

namespace {

// Tensors, and what some of them point at.
struct Exported {
  std::vector<NamedTensor> tensors;
  std::vector<std::vector<std::byte>> kept;
};

void add_forms(Exported& exported, const Case& spec, const std::vector<Form>& forms) {
  for (const Form form : forms) {
    for (NamedTensor& tensor : form_tensors(form_of(spec, form), exported.kept)) {
      const auto same = [&](const NamedTensor& known) { return known.name == tensor.name; };
      if (std::none_of(exported.tensors.begin(), exported.tensors.end(), same)) {
        exported.tensors.push_back(std::move(tensor));
      }
    }
  }
}

ExportedFiles write_files(const ExportRequest& request, Exported exported, const Json& metadata) {
  make_folder(request.folder);
  const std::string stem = file_stem(request.spec.id);
  ExportedFiles files{.tensors = request.folder / (stem + ".safetensors"),
                      .metadata = request.folder / (stem + ".json")};
  files.replaced = (is_there(files.tensors) ? 1 : 0) + (is_there(files.metadata) ? 1 : 0);
  write_safetensors(files.tensors, std::move(exported.tensors), as_strings(metadata));
  write_json(files.metadata, metadata);
  return files;
}

ExportedFiles export_metadata(const ExportRequest& request, const CaseStep& step) {
  const MetadataProblem& problem = step.metadata->problem;
  Exported exported;
  add_forms(exported, request.spec, {problem.form});
  const Json metadata{{"scenario", request.spec.scenario},
                      {"case", request.spec.id},
                      {"op", name(request.spec.op)},
                      {"form", name(problem.form)},
                      {"tokens", problem.tokens},
                      {"samples", problem.samples},
                      {"requests", problem.requests},
                      {"slots", problem.slots},
                      {"vocabulary", problem.vocabulary},
                      {"extra_vocabulary", problem.extra_vocabulary},
                      {"chunk", problem.chunk},
                      {"idle_segments", problem.idle_segments},
                      {"seed", request.spec.seed},
                      {"row", row_of(request.spec, step)}};
  return write_files(request, std::move(exported), metadata);
}

// x, the scales where they are given, and what the oracle makes of them; nothing is launched.
ExportedFiles export_quantise(const ExportRequest& request, const CaseStep& step) {
  const QuantiseProblem& problem = step.quantise->problem;
  Exported exported;
  exported.kept = draw_quantise_inputs(problem, step.quantise->seed, XGaps::kNan);
  const std::size_t inputs = exported.kept.size();
  for (std::vector<std::byte>& array : promised_codes(problem, exported.kept)) {
    exported.kept.push_back(std::move(array));
  }
  const Shape scales{problem.scales.rows, problem.scales.across};
  const auto add = [&](std::string name, Dtype dtype, const Shape& shape) {
    const std::vector<std::byte>& array = exported.kept[exported.tensors.size()];
    exported.tensors.push_back({std::move(name), safetensors_type(dtype), shape, array.data(),
                                static_cast<std::int64_t>(array.size())});
  };
  add("x", problem.from, {problem.rows, problem.stride});
  if (inputs > 1) {
    add("x_scale", Dtype::kFp32, scales);
  }
  add("expected_q", problem.to, {problem.rows, problem.columns});
  if (!problem.scales_given) {
    add("expected_q_scale", Dtype::kFp32, scales);
  }
  const Json row = row_of(request.spec, step);
  Json metadata{{"scenario", request.spec.scenario},
                {"case", request.spec.id},
                {"op", name(request.spec.op)},
                {"content", content_of(problem)},
                {"dtype", name(problem.from)},
                {"rows", problem.rows},
                {"columns", problem.columns},
                {"activations_dtype", name(problem.to)},
                {"activations_scale", name(request.spec.activations.scale)},
                {"activations_group", problem.scales.columns},
                {"seed", request.spec.seed},
                {"row", row},
                {"row_seal", seal_of_row(content_of(problem), row.dump())}};
  put_rule(metadata, "", problem);
  return write_files(request, std::move(exported), metadata);
}

}  // namespace

ExportedFiles export_case(const ExportRequest& request) {
  const Case& spec = request.spec;
  const CaseStep step = step_of(spec);
  if (step.metadata) {
    return export_metadata(request, step);
  }
  if (step.quantise) {
    return export_quantise(request, step);
  }
  const Problem problem = op_to_export(spec, step);
  // A y that is added to holds numbers: who proves a peer need not tell one NaN from another.
  Problem adding = problem;
  adding.add_inputs = true;
  Tensors tensors = draw_tensors(adding, Fill::kBounded, spec.seed);
  if (step.layer) {
    hold_as_adapters_bring(*step.layer, tensors);
  }
  if (request.scales_as_written) {
    tensors.scale = problem.scale;
  }
  const Numerics numerics = request.backend.numerics(problem);
  const std::vector<std::byte> output = launch_once(request, problem, tensors);
  const reference::Rows rows = evaluate_rows(problem, tensors, numerics,
                                             sample_rows(problem, spec.verify.max_rows, spec.seed));

  Exported exported;
  std::vector<NamedTensor>& list = exported.tensors;
  add_operands(list, problem, tensors);
  add_plan(list, problem, tensors);
  add_oracle(list, rows);
  const Shape shape = has_expand(problem.op)
                          ? Shape{problem.tokens, problem.y_stride}
                          : Shape{problem.slices(), problem.tokens, problem.max_rank};
  list.push_back({"output", safetensors_type(output_dtype(problem)), shape, output.data(),
                  static_cast<std::int64_t>(output.size())});
  std::vector<Form> forms = request.forms;
  if (const std::optional<Form> handed = published_form(spec.plan.form)) {
    forms.push_back(*handed);
  }
  add_forms(exported, spec, forms);
  return write_files(request, std::move(exported), metadata_of(request, step, problem, numerics));
}

}  // namespace lora_bench
