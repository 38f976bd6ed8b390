#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "report/row.h"
#include "run/isolate.h"
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

// A process that proves cases, started when it is first asked and again after it ended.
class Prover {
 public:
  // Of one plugin, or of all that this program has itself when no plugin is named.
  explicit Prover(double timeout_s, const std::string& plugin = "");

  [[nodiscard]] IsolatedBackend& process();
  void end() { process_.reset(); }

 private:
  std::vector<std::string> command_;
  std::unique_ptr<IsolatedBackend> process_;
};

// A backend under `fuzz`. A plugin works in a process of its own. The backends of this program
// share one, and on a GPU one context; they take their turns in it, so that its end is the doing of
// the one at work, and the next finds it started again.
class Contestant {
 public:
  // Throws UsageError for one that there is not, without starting it.
  Contestant(std::string spelling, double timeout_s, const std::shared_ptr<Prover>& common);

  [[nodiscard]] const std::string& name() const { return name_; }  // as in rows
  [[nodiscard]] const std::string& spelling() const { return spelling_; }
  // "" when it can be used here. Throws UsageError when it cannot be loaded at all.
  [[nodiscard]] std::string why_not_here();
  // Level 3 as well if the case asks for it; nothing is timed.
  [[nodiscard]] Proof prove(const Case& spec, Start start);

 private:
  std::string spelling_, name_;
  std::shared_ptr<Prover> prover_;
};

}  // namespace lora_bench
