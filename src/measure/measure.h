#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "device/facts.h"
#include "device/memory.h"
#include "measure/clock.h"
#include "measure/clock_watch.h"
#include "measure/statistics.h"
#include "ops/backend.h"
#include "scenario/case.h"
#include "workload/tensors.h"

namespace lora_bench {

// What was found in what launches left.
struct Look {
  std::string wrong = {};     // "" = nothing
  std::int64_t compared = 0;  // elements of the op that were held against the oracle
  std::int64_t unproved = 0;  // of these, accepted whether launches were left out or not
  std::vector<std::int64_t> infinite_rows = {};  // of the whole: the oracle is to be asked of them
  std::int64_t telling_rows = 0;                 // in which a launch left out would have been seen
};

// What was seen of launches one by one, in runs of the timed sequence that copy a piece of the
// output before and after each launch that is looked at.
struct SingleLaunches {
  std::string wrong = {};       // "" = nothing
  std::int64_t looks = 0;       // at one launch each
  std::int64_t telling = 0;     // of these, where a launch left out would have been seen
  std::int64_t whole_runs = 0;  // runs in which every launch was such a look
};
// The least share of left-out work that shows in so many looks but once in a thousand times.
[[nodiscard]] double unseen_share(const SingleLaunches& seen);
// Whether more could be missing from the time than a comparison may be wrong by.
[[nodiscard]] bool too_much_unseen(const SingleLaunches& seen);

// Seconds of a launch among copies of rows, of x or a given h, before it: of those that it had in
// all samples, and of rows that are new.
struct NewInputs {
  double known_s = 0, new_s = 0;
  double launch_s = 0;  // of a launch in a sample
};
// Whether so much of the time is left out while rows are known that it is not that of the work.
[[nodiscard]] bool depends_on_new_inputs(const NewInputs& seen);
// Bytes of rows that are made for it at most.
[[nodiscard]] std::int64_t new_inputs_bytes(const Problem& problem);

// Seconds of the parts of a linear op, each launched by itself.
struct Phases {
  double zero_s = 0;  // 0 where nothing is set to zero
  double shrink_s = 0;
  double expand_s = 0;
  std::vector<Look> replayed;          // of each that was checked, as Measurement::replayed
  std::vector<SingleLaunches> single;  // the same
  std::vector<NewInputs> new_inputs;   // of each that has any
};

struct Measurement {
  std::vector<double> samples_s;   // seconds per launch, one per run of the sequence
  std::vector<double> baseline_s;  // taken in turn with them, where there is a baseline
  Summary summary;                 // of samples_s
  double noise_s = 0;              // A/A, no less than half the interval of the median, see docs
  std::int64_t rotation_sets = 0;  // operand sets in the sequence
  std::int64_t rotated_bytes = 0;  // their bytes together, of what the cache mode rotates
  std::int64_t launches = 0;       // in one sample
  // The same launches, each between two of something else, see docs/measuring.md; empty where that
  // was not measured or is no more than its noise.
  std::optional<double> alone_s, alone_noise_s;
  Conditions before, after;
  double clock_mhz = std::numeric_limits<double>::quiet_NaN();  // SM clock, median of samples_s
  ClockReadings highest_mhz;           // what later samples of the same work are held against
  std::int64_t samples_dropped = 0;    // which were taken at a lowered clock
  std::optional<double> stolen_share;  // of the CPU time wanted while sampling, see CpuTimes
  bool interrupted = false;            // sampling was ended early by `stop`
  std::vector<std::string> warnings;   // "throttled: sw_power_cap", "noisy: ..."
  bool check_passed = true;            // the output after timing was compared once more
  std::string check_message;
  SingleLaunches single;  // launches of the sequence one by one
  Look replayed;          // the sequence once more after timing, of what tells most
  std::optional<NewInputs> new_inputs;
  std::optional<Phases> phases;  // where they were asked for
};

// What launches left, or some rows of it as a problem of their own.
struct Left {
  const Problem& problem;
  const std::vector<const Tensors*>&
      sets;  // operands in the order of the launches that added to it
  const std::vector<std::byte>& output;
  std::int64_t rounds = 1;              // of all these launches
  std::vector<std::int64_t> rows;       // to hold against the oracle; none = scan the whole
  std::vector<std::int64_t> true_rows;  // what messages call each row of `problem`
  std::uint64_t secret = 0;             // from which elements of the rows are drawn
  // Pieces of rows: where each begins in its slice. What lay there before the launch is in the
  // tensors, and is what a launch that was left out leaves. Empty: whole rows.
  std::vector<std::int64_t> first_columns = {};
};

struct MeasureRequest {
  const Problem& problem;
  const MeasureSettings& settings;
  std::uint64_t seed = 1;
  // Asked after timing of what the timed launches left, and of further launches in the timed mode.
  // The run passes in the verifier, so that measure/ needs none.
  std::function<Look(const Left&)> check;
  // Asked between samples; true ends sampling early. May be empty.
  std::function<bool()> stop;
  // Drawn after timing: which rows and sets are looked at. Of tests alone, the others leave it
  // empty for one that nobody can know.
  std::function<std::uint64_t()> secret = nullptr;
  bool alone = true;  // fill alone_s as well
};

[[nodiscard]] Measurement measure(const MeasureRequest& request, const Backend& backend,
                                  Memory& memory, Clock& clock, const DeviceFacts& device);

// How many operand sets the cache mode needs: hot 1; else enough that what a launch touches of them
// exceeds three times the last cache, at least 2, at most kMaxRotationSets; a host makes 32 of them
// at most. Below three caches the measurement evicts the cache before each sample and touches every
// set once a sample.
constexpr std::int64_t kMaxRotationSets = 2048;
[[nodiscard]] std::int64_t rotation_sets(const Problem& problem, CacheMode cache,
                                         std::int64_t cache_bytes);
// Bytes that a measurement allocates, for refusing a case that cannot fit.
[[nodiscard]] std::int64_t measurement_bytes(const Problem& problem, CacheMode cache,
                                             std::int64_t cache_bytes);

// The parts of a linear op, each measured by itself as `measure` does it, with a rotation of its
// own: operands of one part alone may fit a cache that the whole does not fit.
[[nodiscard]] Phases measure_phases(const MeasureRequest& request, const Backend& backend,
                                    Memory& memory, Clock& clock, const DeviceFacts& device);

// Seconds in which the plan of the problem is built from its ids, by itself: on the device for
// device memory (ids in its cache, arrays padded to the slots), by make_plan for host memory. The
// median of several runs of many builds. Nothing where the device's builder does not take it.
// Loads slot 0 of the clock, which is to be loaded anew before it runs again.
[[nodiscard]] std::optional<double> plan_seconds(const Problem& problem, Memory& memory,
                                                 Clock& clock, const DeviceFacts& device);

}  // namespace lora_bench
