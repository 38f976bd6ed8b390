#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/auto_tuning.h"
#include "run/run.h"

namespace lora_bench {

struct TuneRequest {
  std::vector<PlannedRow> rows;  // one for each case
  AutoDevice device;
  double limit_s = 0;
  // Of the case with its tuning; nothing where it was not proved.
  std::function<std::optional<Timed>(const Case&)> time_of;
  std::function<double()> seconds;  // since whenever
  std::function<bool()> interrupted;
  // After each class that was searched; what was found so far.
  std::function<void(const std::vector<TunedShape>&)> keep;
  std::function<void(std::int64_t done, std::int64_t total, const std::string& what)> progress;
};

struct TuneReport {
  std::vector<TunedShape> found;
  std::int64_t classes = 0, searched = 0, tried = 0;
};

// Each class of shapes among the cases has an equal share of the time that is left, on the first of
// its cases.
[[nodiscard]] TuneReport tune(const TuneRequest& request);

// What tunings are for: the GPU here, or the one that `plan` explains where there is none.
struct TuningDevice {
  AutoDevice device;
  std::string name;
  bool here = true;
};

// Tells cases without a tuning of their own what the file says of their class, where the device can
// launch it; gives those that it has an entry for. Throws UsageError where the file is of another
// device.
std::vector<TunedCase> apply_tunings(std::vector<Scenario>& scenarios, const TuningFile& tunings,
                                     const std::filesystem::path& file, const TuningDevice& device);

// What a user would not see from these rows: that no entry fits a case of theirs, or cannot be
// launched. Lines for stderr, or "".
[[nodiscard]] std::string tuning_notes(const std::vector<PlannedRow>& rows,
                                       const std::vector<TunedCase>& tuned,
                                       const std::string& file);

}  // namespace lora_bench
