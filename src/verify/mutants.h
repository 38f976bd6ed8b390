#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "verify/verify.h"

namespace lora_bench {

// A deliberately broken host implementation, to test the verifier. `fault` is a key of the
// catalogue; "none" is the correct one it is derived from.
struct MutantDoc {
  std::string fault;         // "lost-k-tail"
  std::string meaning;       // "the last element of every sum over K is left out"
  std::string hypothesis;    // the key diagnose() must give; "" = none fits
  std::string source;        // "design", or the public bug it stands for
  Part alone = Part::kNone;  // the part of the proof that nothing else can replace: without it the
                             // fault survives
};
[[nodiscard]] const std::vector<MutantDoc>& mutants();
[[nodiscard]] std::unique_ptr<Backend> make_mutant(const std::string& fault);

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
  std::int64_t false_alarms = 0;
  std::vector<std::string> alarm_messages;
};
// Everything caught, named as it should be, by the part that should; no false alarm.
[[nodiscard]] bool sound(const SelfTestReport& report);

// Every mutant over the suite's cases until one catches it; then `correct_cases` random cases over
// the correct host backends. `progress` is called with a line for stderr.
[[nodiscard]] SelfTestReport self_test(std::int64_t correct_cases, std::uint64_t seed,
                                       const std::function<void(const std::string&)>& progress);

}  // namespace lora_bench
