#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"

namespace lora_bench {

struct FuzzRequest {
  std::uint64_t seed = 1;
  std::int64_t cases = 1000;
  std::vector<std::string> backends;   // empty = every usable one
  bool relations = true;               // level 3 as well
  std::filesystem::path folder = ".";  // for the cases that failed
  std::optional<double> time_limit_s;  // no case begins later
  double timeout_s = 20;               // watchdog, per case and backend
  std::int64_t failures_enough = 5;    // a backend with so many is left out of the rest
  bool quiet = false;                  // no progress line
  std::function<void(const std::string&)> tell = [](const std::string&) {};  // a line for stderr
};

// One case that failed or was MISTRUSTED, as it was written.
struct FuzzFailure {
  std::string backend;
  std::uint64_t index = 0;  // of the case it was drawn as
  // Of the case as written, and as drawn: a larger one tells more causes apart.
  Status status = Status::kFailed, status_as_drawn = Status::kFailed;
  std::string message, as_drawn;
  std::filesystem::path file;
  std::string command;      // that shows the failure again
  std::string how_written;  // "made smaller in 12 of 80 tries", or why not
};

struct FuzzCount {
  std::string backend;
  std::int64_t cases = 0, passed = 0, mistrusted = 0, skipped = 0, failed = 0;
  std::string remark;  // why all were skipped, or the rest was left out
  std::map<std::string, std::int64_t> skipped_because;  // in its own words; cases
};

struct FuzzReport {
  std::int64_t cases = 0;  // begun
  std::vector<FuzzCount> counts;
  std::vector<FuzzFailure> failures;
  std::vector<FuzzFailure> mistrusted;  // the first of each backend
  double seconds = 0;
  ExitCode exit = ExitCode::kPass;
  std::string ending;  // a sentence when it ended early
};

// Proves every backend, in processes beside this one (run/contestant.h), on cases drawn from the
// seed: the same seed draws the same cases whatever the backends. A case that fails is made as
// small as it stays failing and written to FOLDER/fuzz-SEED-INDEX.yaml (or -2, where that is) at
// once, so that nothing that follows can lose it; one that fails as a case before it did, and is
// the same made small, names that file. MISTRUSTED cases are written as drawn, the first
// `failures_enough` of each backend. Throws UsageError and EnvironmentError before any
// work.
[[nodiscard]] FuzzReport fuzz(const FuzzRequest& request);

}  // namespace lora_bench
