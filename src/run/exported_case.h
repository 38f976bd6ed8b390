#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/row.h"
#include "run/safetensors.h"
#include "workload/problem.h"
#include "workload/tensors.h"

namespace lora_bench {

// A case read back from what `export` wrote.
struct ExportedCase {
  Row row;  // what a row says of it
  Problem problem;
  Tensors tensors;
  std::vector<std::int64_t> rows;  // that are to be compared in full
};

// Whether the operand is written, and its name in the file (docs/export.md). An h that the op
// writes is not.
[[nodiscard]] bool exported(const Operand& operand);
[[nodiscard]] std::string exported_name(const Operand& operand);
// What `export` writes beside the row it tells, so that a row of another case is told from it.
[[nodiscard]] std::string seal_of_row(const std::string& content, const std::string& row);
// Throws UsageError, naming the tensor or the key, for a file that `export` did not write.
[[nodiscard]] ExportedCase exported_case(StoredTensors stored);

}  // namespace lora_bench
