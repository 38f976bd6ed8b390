#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "report/sink.h"

namespace lora_bench {

enum class Change : std::uint8_t {
  kFaster,
  kSame,
  kSlower,
  kInconclusive,
  kMissing,  // in base, not in new
  kAdded,    // in new, not in base
  kBroken,   // passed in base, did not in new
};
[[nodiscard]] std::string_view name(Change change);

struct CompareOptions {
  double threshold = 0.05;  // a slowdown above this share is a regression
  bool threshold_given = false;  // else a row's own max_regression comes first
  bool strict = false;      // refuse other GPU, driver, scenario instead of warning
};

struct ComparedRow {
  std::string scenario, case_id, backend;
  std::optional<double> base_us, new_us, ratio, noise_share;
  Change change = Change::kInconclusive;
  std::string reason;  // one sentence
};

struct CompareReport {
  std::vector<ComparedRow> rows;
  std::vector<std::string> warnings;  // contexts that differ
  ExitCode exit = ExitCode::kPass;
};

[[nodiscard]] CompareReport compare(const Results& base, const Results& fresh,
                                    const CompareOptions& options);

// Verdict on two sample sets of one row; the method is in docs/comparing.md.
[[nodiscard]] ComparedRow judge(const Row& base, const Row& fresh, const CompareOptions& options);

[[nodiscard]] std::string render_compare(const CompareReport& report, bool markdown, bool colour);

}  // namespace lora_bench
