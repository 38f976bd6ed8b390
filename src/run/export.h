#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "device/facts.h"
#include "device/memory.h"
#include "ops/backend.h"
#include "report/row.h"
#include "run/safetensors.h"
#include "scenario/case.h"
#include "workload/problem.h"
#include "workload/quantise.h"
#include "workload/tensors.h"

namespace lora_bench {

struct ExportRequest {
  const Case& spec;
  const Backend& backend;
  Memory& memory;  // of the backend's space
  const DeviceFacts& facts;
  std::filesystem::path folder;  // made if missing
  // The scales that the scenario writes; else each adapter has its own, so that a wrong one shows.
  bool scales_as_written = false;
  std::vector<Form> forms = {};  // of the batch that are written beside the operands
};

struct ExportedFiles {
  std::filesystem::path tensors;   // FOLDER/CASE.safetensors
  std::filesystem::path metadata;  // FOLDER/CASE.json
  int replaced = 0;                // how many of them were there before
};

// Throws UsageError, before anything is written, where two of the cases have one file: what is
// neither letter nor digit nor "-" nor "." becomes "_" in its name.
void refuse_shared_files(const std::vector<std::string>& case_ids);

// Throws UsageError for a layer that is more than a product and one op.
void refuse_unexported(const Case& spec);

// Launches the backend once on bounded data and writes inputs, plan, its output, and what the
// oracle expects of it (docs/export.md lists the tensors), so that others can check us without our
// code. Of op metadata it writes what an engine has and the arrays of the form, of op quantise x
// and what it becomes, and launches nothing. Throws UsageError when the backend cannot do the case,
// EnvironmentError when a file cannot be written.
[[nodiscard]] ExportedFiles export_case(const ExportRequest& request);

// A case read back from what `export` wrote.
struct ExportedCase {
  Row row;  // what a row says of it
  Problem problem;
  Tensors tensors;
  std::vector<std::int64_t> rows;  // that are to be compared in full
};

// The same of op quantise.
struct ExportedQuantise {
  Row row;
  QuantiseProblem problem;
  QuantiseArrays inputs;
};

// Whether the operand is written, and its name in the file (docs/export.md). An h that the op
// writes is not.
[[nodiscard]] bool exported(const Operand& operand);
[[nodiscard]] std::string exported_name(const Operand& operand);
// What `export` writes beside the row it tells, so that a row of another case is told from it.
[[nodiscard]] std::string seal_of_row(const std::string& content, const std::string& row);
// Throws UsageError, naming the tensor or the key, for a file that `export` did not write.
[[nodiscard]] ExportedCase exported_case(StoredTensors stored);
[[nodiscard]] ExportedQuantise exported_quantise(StoredTensors stored);
// Hash of all that the problem says, so that a file whose metadata was changed shows.
[[nodiscard]] std::string content_of(const QuantiseProblem& problem);

}  // namespace lora_bench
