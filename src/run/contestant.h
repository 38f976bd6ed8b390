#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "report/row.h"
#include "run/isolated_backend.h"
#include "scenario/case.h"

namespace lora_bench {

// How much of earlier cases a proof may meet: all that the process holds, a new backend in it, or a
// new process.
enum class Start : std::uint8_t { kOn, kFreshBackend, kFreshProcess };

struct Proof {
  Row row;
  bool crashed = false;   // the process ended; row.message says how
  bool unusable = false;  // its machine, as it says
};

// A backend under `fuzz`: it works in a process of its own, which is started again when it ended.
class Contestant {
 public:
  // Throws UsageError for one that there is not, without starting it.
  explicit Contestant(std::string spelling);

  [[nodiscard]] const std::string& name() const { return name_; }  // as in rows
  [[nodiscard]] const std::string& spelling() const { return spelling_; }
  // "" when it can be used here. Throws UsageError when it cannot be loaded at all.
  [[nodiscard]] std::string why_not_here();
  // Level 3 as well if the case asks for it; nothing is timed.
  [[nodiscard]] Proof prove(const Case& spec, Start start);

 private:
  [[nodiscard]] IsolatedBackend& process();

  std::string spelling_, name_;
  std::unique_ptr<IsolatedBackend> process_;
};

}  // namespace lora_bench
