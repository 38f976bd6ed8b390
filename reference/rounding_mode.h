#pragma once

#include <cfenv>

namespace lora_bench::reference {

// Round to nearest even, nothing flushed to zero, as the oracle counts on, whatever the caller's
// thread was left in; threads started meanwhile begin the same.
class DefaultRounding {
 public:
  DefaultRounding() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultRounding() { std::fesetenv(&before_); }
  DefaultRounding(const DefaultRounding&) = delete;
  DefaultRounding& operator=(const DefaultRounding&) = delete;

 private:
  std::fenv_t before_{};
};

}  // namespace lora_bench::reference
