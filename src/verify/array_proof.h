#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ops/array_buffers.h"
#include "verify/diagnose.h"
#include "verify/verify.h"

namespace lora_bench {

// Every entry of all outputs against what is promised.
struct EntriesCompared {
  std::int64_t compared = 0, wrong = 0;
  std::string first;  // the first wrong entry, "" where all are right
};

// The verdict on an op that is arrays in, arrays out, as it grows from launch to launch. After the
// first failure nothing changes it.
class ArrayVerdict {
 public:
  [[nodiscard]] bool failed() const { return verdict_.failure.has_value(); }
  // Whether any launch so far had an entry to write.
  [[nodiscard]] bool compared_any() const { return verdict_.compared > 0; }
  void pass(Level level);
  // Notes what a launch left in the buffers: entries, guards and inputs. `what` says which launch
  // of the level it was; `diagnose` is asked where entries are wrong.
  void note(const ArrayBuffers& buffers, Level level, const std::string& what,
            const EntriesCompared& entries, const std::function<Hypothesis()>& diagnose);
  // The verdict on all launches.
  [[nodiscard]] Verdict conclude();

 private:
  Verdict verdict_;
};

}  // namespace lora_bench
