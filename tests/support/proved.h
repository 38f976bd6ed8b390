#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "verify/verify.h"

namespace lora_bench::test {

// What proofs of a right backend came to. A test that took PASSED or MISTRUSTED for every case
// would hold of a verifier that proves nothing: here each verdict says what was compared, and of
// all of them enough must have proved something.
class Proved {
 public:
  // Why the verdict is none of a right backend on this problem; "" = it is one.
  std::string why_not(const Problem& problem, const Verdict& verdict) {
    ++all_;
    const bool has_rows = owned_elements(problem) > 0;
    const auto passed = [&](Level level) {
      return std::find(verdict.passed.begin(), verdict.passed.end(), level) != verdict.passed.end();
    };
    if (verdict.status == Status::kMistrusted) {
      const bool said_so = verdict.message.find("doing nothing would pass") != std::string::npos ||
                           verdict.message.find("sums need") != std::string::npos;
      return said_so ? "" : "MISTRUSTED without a reason of the case: " + verdict.message;
    }
    if (verdict.status != Status::kPassed) {
      return "neither PASSED nor MISTRUSTED: " + verdict.message;
    }
    if (has_rows && (verdict.compared == 0 || !passed(Level::kMemory))) {
      return "PASSED without a comparison";
    }
    if (has_rows && !passed(Level::kExact) && !passed(Level::kBounded)) {
      return "PASSED without a level of values";
    }
    ++passed_;
    with_rows_ += has_rows ? 1 : 0;
    exact_ += has_rows && passed(Level::kExact) ? 1 : 0;
    bounded_ += has_rows && passed(Level::kBounded) ? 1 : 0;
    return "";
  }

  // "" where nineteen proofs in twenty passed, and of those of something nine in ten at each level
  // of values.
  [[nodiscard]] std::string why_too_little() const {
    if (all_ == 0 || with_rows_ == 0) {
      return "nothing was proved";
    }
    if (20 * passed_ < 19 * all_) {
      return std::to_string(passed_) + " of " + std::to_string(all_) + " PASSED";
    }
    if (10 * exact_ < 9 * with_rows_ || 10 * bounded_ < 9 * with_rows_) {
      return std::to_string(exact_) + " exact and " + std::to_string(bounded_) + " bounded of " +
             std::to_string(with_rows_);
    }
    return "";
  }

 private:
  std::int64_t all_ = 0, passed_ = 0, with_rows_ = 0, exact_ = 0, bounded_ = 0;
};

// Of one verdict among those of a test case, and once at its end.
inline void check_proved(Proved& proved, const Problem& problem, const Verdict& verdict) {
  CHECK(proved.why_not(problem, verdict) == "");
}

inline void check_enough(const Proved& proved) { CHECK(proved.why_too_little() == ""); }

}  // namespace lora_bench::test
