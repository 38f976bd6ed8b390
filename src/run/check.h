#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "report/row.h"
#include "verify/verify.h"

namespace lora_bench {

// What the producer of a tensor declares of its arithmetic; what is not set is what an fp32
// accumulation on tensor cores in any order needs.
struct DeclaredNumerics {
  std::optional<double> unit_roundoff;
  std::optional<std::int64_t> shrink_depth, expand_depth, partials, terms;
  std::optional<Dtype> partial, intermediate;
  bool rounds_delta = false, rounds_once = false, casts_h = false;
  BiasAdded bias_added = BiasAdded::kWithDelta;

  [[nodiscard]] bool operator==(const DeclaredNumerics&) const = default;
};

struct CheckRequest {
  std::filesystem::path exported;  // what `export` wrote
  std::filesystem::path output;    // the safetensors file with the result
  // Its name in there; without one "output", or the tensor of a file that holds but one.
  std::optional<std::string> tensor;
  // A tensor in there: y as it was before the op, where that is not as the case has it, as after
  // the product of a layer.
  std::optional<std::string> before;
  DeclaredNumerics declared;
};

struct CheckReport {
  Verdict verdict;
  Row row;  // the case and the verdict, for a results file
};

// Proves a result that anything computed from an exported case: values within the bound, nothing
// unowned touched, the hypothesis named. Of op quantise codes and scales are compared bit for bit,
// tensors `q` and, where they are made, `q_scale`. Throws UsageError for files that do not fit
// together, and for a case of op metadata.
[[nodiscard]] CheckReport check(const CheckRequest& request);

}  // namespace lora_bench
