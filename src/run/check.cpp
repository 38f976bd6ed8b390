#include "run/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/dtype.h"
#include "core/error.h"
#include "run/export.h"
#include "run/row_of.h"
#include "verify/diagnose.h"
#include "verify/oracle.h"
#include "verify/quantise_proof.h"
#include "verify/verify.h"

namespace lora_bench {
namespace {

using Shape = std::vector<std::int64_t>;

// A declaration of something that the step has not is a mistake.
void refuse_pointless(const Problem& problem, const DeclaredNumerics& declared) {
  if (declared.terms && !has_shrink(problem.op)) {
    throw UsageError("--terms is of a sum over K, and this op has none");
  }
  if (declared.rounds_once && (!has_expand(problem.op) || !problem.add_inputs)) {
    throw UsageError("--rounds-once is of a y that is added to, and this op has none");
  }
  if (declared.rounds_once && declared.rounds_delta) {
    throw UsageError("--rounds-once and --rounds-delta exclude each other");
  }
}

Numerics numerics_of(const Problem& problem, const DeclaredNumerics& declared) {
  refuse_pointless(problem, declared);
  Numerics numerics;
  numerics.unit_roundoff = declared.unit_roundoff.value_or(0x1p-23);
  numerics.terms_of_h = declared.terms.value_or(1);
  numerics.shrink_depth =
      declared.shrink_depth.value_or(problem.in_features + numerics.terms_of_h - 1);
  numerics.expand_depth = declared.expand_depth.value_or(problem.max_rank + 2);
  numerics.partials = declared.partials.value_or(1);
  numerics.partial = declared.partial.value_or(Dtype::kFp32);
  numerics.intermediate = declared.intermediate.value_or(problem.kept_h());
  numerics.rounds_delta = declared.rounds_delta;
  numerics.rounds_once = declared.rounds_once;
  numerics.casts_h = declared.casts_h;
  numerics.bias_added = declared.bias_added;
  const std::string fault = beyond_need(problem, numerics);
  if (!fault.empty()) {
    throw UsageError(fmt::format("declared {} for this case", fault));
  }
  return numerics;
}

StoredTensor& find_result(StoredTensors& stored, const std::optional<std::string>& asked) {
  const std::string name = asked.value_or("output");
  const auto found = stored.tensors.find(name);
  if (found != stored.tensors.end()) {
    return found->second;
  }
  if (!asked && stored.tensors.size() == 1) {
    return stored.tensors.begin()->second;
  }
  std::vector<std::string> names;
  for (const auto& [known, tensor] : stored.tensors) {
    names.push_back(known);
  }
  throw UsageError(fmt::format("{}: there is no tensor '{}'; name one with --tensor: {}",
                               stored.file.string(), name, fmt::join(names, ", ")));
}

template <typename Real>
std::vector<std::byte> rounded(const std::vector<std::byte>& data, Dtype dtype) {
  const std::size_t count = data.size() / sizeof(Real);
  const auto bytes = static_cast<std::size_t>(size_bytes(dtype));
  std::vector<std::byte> result(count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    Real value = 0;
    std::memcpy(&value, data.data() + i * sizeof(Real), sizeof(Real));
    const std::uint32_t bits = reference::encode(number_of(dtype), static_cast<double>(value));
    std::memcpy(result.data() + i * bytes, &bits, bytes);
  }
  return result;
}

std::int64_t element_bytes(const std::string& type) {
  return type == "F64" ? 8 : type == "F32" ? 4 : 2;
}

// The result in the dtype of the op's output: as it is, or rounded once from a wider one, since
// what has no bfloat16 (NumPy) can still be checked.
std::vector<std::byte> result_bytes(const std::filesystem::path& file, StoredTensor result,
                                    const Problem& problem) {
  const Dtype dtype = output_dtype(problem);
  const Shape shape = has_expand(problem.op)
                          ? Shape{problem.tokens, problem.y_stride}
                          : Shape{problem.slices(), problem.tokens, problem.max_rank};
  const std::string type = safetensors_type(dtype);
  const bool known = result.type == type || result.type == "F32" || result.type == "F64";
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    elements *= size;
  }
  const bool whole =
      static_cast<std::int64_t>(result.data.size()) == elements * element_bytes(result.type);
  if (!known || result.shape != shape || !whole) {
    throw UsageError(fmt::format(
        "{}: the result is {} [{}], must be {} (or F32 or F64, which are "
        "rounded) [{}]",
        file.string(), result.type, fmt::join(result.shape, ", "), type, fmt::join(shape, ", ")));
  }
  if (result.type == type) {
    return std::move(result.data);
  }
  return result.type == "F64" ? rounded<double>(result.data, dtype)
                              : rounded<float>(result.data, dtype);
}

// What is added to no number is no number, whatever is added.
void refuse_no_numbers(const Problem& problem, const std::vector<std::byte>& y) {
  const std::int64_t columns =
      std::accumulate(problem.widths.begin(), problem.widths.end(), std::int64_t{0});
  for (std::int64_t token = 0; problem.add_inputs && token < problem.tokens; ++token) {
    const std::int32_t adapter = problem.plan.adapter_of_token[static_cast<std::size_t>(token)];
    if (adapter < 0 || problem.rank[static_cast<std::size_t>(adapter)] == 0) {
      continue;
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      const std::int64_t column = problem.offset_start + i;
      const float value =
          load(problem.dtype[Role::kY], y.data(), token * problem.y_stride + column);
      if (!std::isfinite(value)) {
        throw UsageError(fmt::format(
            "y before the op is {} at token {}, column {}: nothing can be proved of what is added",
            value, token, column));
      }
    }
  }
}

Verdict failed(Verdict verdict, Failure failure) {
  verdict.status = Status::kFailed;
  verdict.message = describe(failure);
  verdict.failure = std::move(failure);
  return verdict;
}

Verdict judge(const ExportedCase& exported, const Numerics& numerics,
              const std::vector<std::byte>& got) {
  const Problem& problem = exported.problem;
  const Comparison comparison =
      compare_output(problem, exported.tensors, numerics, got.data(), exported.rows);
  Verdict verdict;
  verdict.compared = comparison.compared;
  verdict.bound_share = comparison.bound_share;
  verdict.rows_checked = problem.tokens == 0 ? 1
                                             : static_cast<double>(exported.rows.size()) /
                                                   static_cast<double>(problem.tokens);
  if (comparison.wrong > 0) {
    const Hypothesis hypothesis =
        diagnose(problem, exported.tensors, numerics, got.data(), comparison);
    return failed(verdict, {Level::kBounded, "wrong values", comparison.wrong, comparison.compared,
                            comparison.first, hypothesis.key, hypothesis.sentence});
  }
  if (std::optional<Failure> failure = scan_all_rows(problem, exported.tensors, got.data())) {
    return failed(verdict, std::move(*failure));
  }
  if (owned_elements(problem) > 0 && comparison.owned == 0) {
    verdict.message = "no element of the rows is the op's";
    return verdict;
  }
  if (const std::string why_not = why_no_proof(comparison); !why_not.empty()) {
    verdict.message = why_not + "; a closer declaration of the arithmetic proves more";
    return verdict;
  }
  verdict.status = Status::kPassed;
  verdict.passed = {Level::kBounded};
  return verdict;
}

// Of op quantise: bytes of exactly this array; codes may be plain bytes, for what has no numbers of
// eight bits.
std::vector<std::byte> exact_array(StoredTensors& stored, const std::string& name, Dtype dtype,
                                   const Shape& shape) {
  StoredTensor& found = find_result(stored, name);
  const bool bytes = size_bytes(dtype) == 1 && found.type == "U8";
  const std::string type = safetensors_type(dtype);
  const std::int64_t elements = shape[0] * shape[1];
  if ((found.type != type && !bytes) || found.shape != shape ||
      static_cast<std::int64_t>(found.data.size()) != elements * size_bytes(dtype)) {
    throw UsageError(fmt::format("{}: tensor '{}' is {} [{}], must be {}{} [{}]",
                                 stored.file.string(), name, found.type,
                                 fmt::join(found.shape, ", "), type,
                                 size_bytes(dtype) == 1 ? " (or U8)" : "", fmt::join(shape, ", ")));
  }
  return std::move(found.data);
}

Verdict judge_quantise(const ExportedQuantise& exported, const QuantiseArrays& got) {
  const QuantiseArrays promised = promised_codes(exported.problem, exported.inputs);
  const EntriesCompared all = compare_codes(exported.problem, promised, got);
  Verdict verdict;
  verdict.rows_checked = 1;
  verdict.compared = all.compared;
  if (verdict.compared == 0) {
    verdict.message = "the case has no rows: there is nothing to compare";
    return verdict;
  }
  if (all.wrong > 0) {
    // Nobody knows what lay where the producer wrote.
    const Hypothesis hypothesis =
        diagnose_codes(exported.problem, exported.inputs, unlike(promised), {}, got);
    return failed(verdict, {Level::kExact,
                            all.first,
                            all.wrong,
                            all.compared,
                            {},
                            hypothesis.key,
                            hypothesis.sentence});
  }
  verdict.status = Status::kPassed;
  verdict.passed = {Level::kExact};
  return verdict;
}

CheckReport report_of(const Row& row, Verdict verdict) {
  CheckReport report{.verdict = std::move(verdict), .row = row};
  report.row.status = report.verdict.status;
  report.row.message = report.verdict.message;
  report.row.proof = proof_of(report.verdict);
  return report;
}

CheckReport check_quantise(const CheckRequest& request, StoredTensors stored) {
  if (request.tensor || request.before || request.declared != DeclaredNumerics{}) {
    throw UsageError(
        "a case of op quantise is compared bit for bit, so nothing is declared of it; name the "
        "codes q and the scales q_scale, and leave out all options but --output and --json");
  }
  const ExportedQuantise exported = exported_quantise(std::move(stored));
  const QuantiseProblem& problem = exported.problem;
  StoredTensors results = read_safetensors(request.output);
  QuantiseArrays got{exact_array(results, "q", problem.to, {problem.rows, problem.columns})};
  if (!problem.scales_given) {
    got.push_back(exact_array(results, "q_scale", Dtype::kFp32,
                              {problem.scales.rows, problem.scales.across}));
  }
  return report_of(exported.row, judge_quantise(exported, got));
}

}  // namespace

CheckReport check(const CheckRequest& request) {
  StoredTensors file = read_safetensors(request.exported);
  const std::string op = file.metadata.contains("op") ? file.metadata["op"] : "";
  if (op == name(Op::kMetadata)) {
    throw UsageError(fmt::format(
        "{}: `check` reads no case of op metadata: its arrays are in the file, so compare yours "
        "with them (docs/plan.md says which entries are free), or prove what makes them as a "
        "backend, with `lora-bench verify metadata --backends YOURS`",
        file.file.string()));
  }
  if (op == name(Op::kQuantise)) {
    return check_quantise(request, std::move(file));
  }
  ExportedCase exported = exported_case(std::move(file));
  // What a case asks of backends binds nobody who declares another h that is no operand and no
  // result.
  if (request.declared.intermediate && has_shrink(exported.problem.op) &&
      has_expand(exported.problem.op)) {
    exported.problem.dtype[Role::kH] = *request.declared.intermediate;
    exported.problem.h_quantiser.reset();
  }
  StoredTensors stored = read_safetensors(request.output);
  if (request.before) {
    if (!has_expand(exported.problem.op)) {
      throw UsageError("--before is y before the op, and this one has no y");
    }
    exported.tensors.y.data =
        result_bytes(stored.file, find_result(stored, request.before), exported.problem);
    refuse_no_numbers(exported.problem, exported.tensors.y.data);
  }
  const std::vector<std::byte> got =
      result_bytes(stored.file, std::move(find_result(stored, request.tensor)), exported.problem);
  return report_of(exported.row,
                   judge(exported, numerics_of(exported.problem, request.declared), got));
}

}  // namespace lora_bench
