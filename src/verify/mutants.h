#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/mutant/mutant_fault.h"
#include "ops/backend.h"
#include "verify/verify.h"

namespace lora_bench {

// A deliberately broken implementation, to test the verifier. `fault` is a key of a catalogue;
// "none" is the correct one that those of the host derive from, "gpu-none" that of the GPU.
struct MutantDoc {
  std::string fault;         // "lost-k-tail"
  std::string meaning;       // "the last element of every sum over K is left out"
  std::string hypothesis;    // the key diagnose() must give; "" = none fits (on the GPU: none is
                             // asked for)
  std::string source;        // "design", or the public bug it stands for
  Part alone = Part::kNone;  // the part of the proof that nothing else can replace: without it the
                             // fault survives
  bool any_name = false;     // without a hypothesis: what fits depends on the values, none is asked
};
[[nodiscard]] const std::vector<MutantDoc>& mutants();
[[nodiscard]] const std::vector<MutantDoc>& gpu_mutants();
// "" when the mutant can run on this machine with this build. Throws UsageError for no mutant.
[[nodiscard]] std::string why_no_mutant(const std::string& fault);
// Throws UsageError for no mutant, EnvironmentError for one of the GPU where there is none.
[[nodiscard]] std::unique_ptr<Backend> make_mutant(const std::string& fault);

using Stop = std::function<bool()>;
[[nodiscard]] inline bool never() { return false; }

struct SelfTestRow {
  std::string fault;
  bool caught = false;
  bool named_right = false;  // the hypothesis is the one of its MutantDoc
  bool part_needed = true;   // it survives without the part that is to catch it alone
  std::string level;         // the first level that caught it
  std::string hypothesis;    // named
  std::string case_id;       // the case that caught it
};
struct SelfTestReport {
  std::vector<SelfTestRow> rows;
  std::int64_t correct_cases = 0;
  std::int64_t correct_passed = 0;  // of these; the others are MISTRUSTED, or false alarms
  std::int64_t false_alarms = 0;
  std::vector<std::string> alarm_messages;
  std::int64_t skipped = 0;  // mutants that were not run
  std::string why_skipped;   // "" when none was
  bool interrupted = false;  // `stop` said so: what is here is a part
};
// Everything caught, named as it should be, by the part that should; no false alarm, and of the
// right backends nine proofs in ten PASSED.
[[nodiscard]] bool sound(const SelfTestReport& report);

// One of several shares of the self-test, which can be tried side by side: of every `count` mutants
// one. What is right is tried in the first.
struct Share {
  std::size_t index = 0, count = 1;
};

// Every mutant of the share that this machine can run over the suite's cases until one catches it;
// then `correct_cases` random cases over the backends that are to be right. `progress` is called
// with a line for stderr, `stop` before each case.
[[nodiscard]] SelfTestReport self_test(std::int64_t correct_cases, std::uint64_t seed,
                                       const std::function<void(const std::string&)>& progress,
                                       const Stop& stop = never, Share share = {});

struct GpuFaultEntry {
  kernels::MutantFault fault = kernels::MutantFault::kNone;
  MutantDoc doc;
  Level level = Level::kExact;                    // that catches it in its case
  std::string seen_in = "packed-bias-base-rows";  // the telling case that is enough to see it
};
[[nodiscard]] const std::vector<GpuFaultEntry>& gpu_fault_catalogue();

// Tiled kernels with one fault (kernels/mutant). Throws EnvironmentError without a usable GPU.
[[nodiscard]] std::unique_ptr<Backend> make_gpu_mutant(kernels::MutantFault fault,
                                                       const std::string& name);

}  // namespace lora_bench
